// A small GPT learns text whose entropy is known: on tp=2 x pp=2 for the first part, then, from its checkpoint, on dp=2
// x tp=2. The curve goes on as if nothing had been, and ends near the least loss, below what knowing one letter gives.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using tutti::testing::Ended;

using Words = std::vector<std::string>;

constexpr int kChange = 40, kBeyond = 5, kEnd = 80;  // steps
constexpr double kReached = 0.25;                    // nats a letter; one letter before is worth 0.59, two all

Words with_words(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Ended run(const Words& line) {
  return tutti::testing::run(line, {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}});
}

// Of the steps that the run made, in their order.
std::vector<double> losses(const Ended& ended) {
  std::vector<double> found;
  for (const auto& line : split(ended.out, '\n')) {
    const auto at = line.find("lm loss: ");
    if (line.find("consumed samples") == std::string::npos || at == std::string::npos) continue;
    found.push_back(*parse_double(line.substr(at + 9, line.find(" |", at) - at - 9)));
  }
  return found;
}

double mean(const std::vector<double>& values, std::size_t begin, std::size_t end) {
  double sum = 0;
  for (std::size_t i = begin; i < end; ++i) sum += values[i];
  return sum / double(end - begin);
}

TEST(PretrainGptText, LearnsWhatThereIsAndResumesAsAnotherGrid) {
  const tutti::testing::Folder folder;
  const std::string text = folder.path() + "/planted.txt", tokens = folder.path() + "/planted";
  const auto written =
      run({TUTTI_COMMAND, "data", "text", "--output", text, "--bytes", "300K", "--length", "16384", "--branches", "1"});
  ASSERT_EQ(written.code, 0) << written.err;
  const auto told = written.out.find("least loss: ");
  ASSERT_NE(told, std::string::npos) << written.out;
  const double least = *parse_double(written.out.substr(told + 12, 6));
  EXPECT_EQ(least, 0) << "one letter follows any two";
  EXPECT_THAT(written.out, HasSubstr("knowing one letter before 0.5908"));
  const auto made = run({TUTTI_COMMAND, "data", "tokenize", text, "--documents", "line", "--output", tokens});
  ASSERT_EQ(made.code, 0) << made.err;

  const std::string save = folder.path() + "/run";
  const auto pretrain = [&](const Words& grid) {
    return run(with_words({TUTTI_COMMAND,
                           "run",
                           "-n",
                           "4",
                           "--",
                           PRETRAIN_GPT,
                           "--num-layers",
                           "2",
                           "--hidden-size",
                           "32",
                           "--num-attention-heads",
                           "4",
                           "--seq-length",
                           "32",
                           "--max-position-embeddings",
                           "32",
                           "--data-path",
                           tokens,
                           "--split",
                           "14,2,2",
                           "--tokenizer-type",
                           "byte",
                           "--hidden-dropout",
                           "0",
                           "--attention-dropout",
                           "0",
                           "--micro-batch-size",
                           "8",
                           "--global-batch-size",
                           "16",
                           "--train-iters",
                           std::to_string(kEnd),
                           "--lr",
                           "1e-2",
                           "--init-method-std",
                           "0.1",
                           "--min-lr",
                           "1e-4",
                           "--lr-decay-style",
                           "cosine",
                           "--lr-warmup-iters",
                           "10",
                           "--eval-iters",
                           "1",
                           "--log-interval",
                           "1"},
                          with_words({"--tensor-model-parallel-size", "2"}, grid)));
  };
  // Leaves some steps behind the checkpoint, so that there are losses to compare with.
  const auto first =
      pretrain({"--pipeline-model-parallel-size", "2", "--sequence-parallel", "--save", save, "--save-interval",
                std::to_string(kChange), "--exit-interval", std::to_string(kChange + kBeyond)});
  ASSERT_EQ(first.code, 0) << first.err;
  const auto second = pretrain({"--load", save, "--ckpt-step", std::to_string(kChange)});
  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_THAT(second.err, HasSubstr("saved by tp=2 x cp=1 x dp=1 x pp=2"));

  const auto before = losses(first), after = losses(second);
  ASSERT_EQ(before.size(), std::size_t(kChange + kBeyond));
  ASSERT_EQ(after.size(), std::size_t(kEnd - kChange));
  EXPECT_GT(before[0], 5) << "log 257 is 5.5";
  for (int i = 0; i < kBeyond; ++i) EXPECT_NEAR(after[i], before[kChange + i], 1e-3) << "step " << kChange + i + 1;
  const double half_way = mean(before, kChange - 5, kChange), at_the_end = mean(after, after.size() - 5, after.size());
  EXPECT_LT(at_the_end, half_way);
  EXPECT_LT(at_the_end, kReached);
  EXPECT_GT(at_the_end, least) << "less than there is to be known";
  fmt::print("loss {:.4f} after {} steps, {:.4f} after {}; the least is {:.4f}\n", half_way, kChange, at_the_end, kEnd,
             least);
}

}  // namespace
}  // namespace tutti
