// examples/trainer with data that the tests make: what is learned, and that a finished run is resumed, not repeated.
#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/launch/running.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class TrainerExamples : public ::testing::Test {
 protected:
  TrainerExamples() { std::filesystem::create_directories(folder_); }
  ~TrainerExamples() override { std::filesystem::remove_all(folder_); }

  testing::Ended run(const std::string& program, const std::string& data, int ranks) {
    const auto ended = testing::run({TUTTI_COMMAND, "run", "-q", "-n", std::to_string(ranks), "--",
                                     EXAMPLES "/" + program, folder_ + "/" + data, folder_ + "/run"},
                                    {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended;
  }

  const std::string folder_ = ::testing::TempDir() + "trainer_examples_" + std::to_string(::getpid());
};

TEST_F(TrainerExamples, PicturesOfAFolder) {
  for (const std::string label : {"lines", "columns"}) {
    std::filesystem::create_directories(folder_ + "/data/" + label);
    for (int n = 0; n < 24; ++n) {
      std::ofstream file(folder_ + "/data/" + label + "/" + std::to_string(n) + ".pgm", std::ios::binary);
      file << "P5 8 8 255\n";
      for (int row = 0; row < 8; ++row)
        for (int column = 0; column < 8; ++column)
          file.put(char(200 * ((label == "lines" ? row : column) % 2) + (7 * n + 3 * row + 5 * column) % 50));
    }
  }
  EXPECT_THAT(run("pictures", "data", 2).out, HasSubstr("step 60: 1.000 of the pictures are right"));
  const auto again = run("pictures", "data", 2);
  EXPECT_THAT(again.out, HasSubstr("step 60: 1.000 of the pictures are right"));
  EXPECT_THAT(again.err, Not(HasSubstr("step 1/"))) << "nothing is left to train";
}

TEST_F(TrainerExamples, TextOfAFolder) {
  std::filesystem::create_directories(folder_ + "/books");
  for (const std::string name : {"1.txt", "2.txt"}) {
    std::ofstream file(folder_ + "/books/" + name);
    for (int n = 0; n < 25; ++n) file << "the quick brown fox jumps over the lazy dog. ";
  }
  EXPECT_THAT(run("text", "books", 2).out, HasSubstr("the quick brown fox jumps over the lazy dog. the quick"));
}

}  // namespace
}  // namespace tutti
