#pragma once
// For the tests of train_image as a program. The data is made here: the place of a bright square tells the class, which
// a network learns in a few steps.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <vector>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti::test {

inline void write_idx(const std::string& path, std::vector<std::uint32_t> shape, const std::string& values) {
  std::ofstream file(path, std::ios::binary);
  file << std::string({0, 0, 8, char(shape.size())});
  for (auto extent : shape)
    file << std::string({char(extent >> 24), char(extent >> 16), char(extent >> 8), char(extent)});
  file << values;
}

inline void write_dataset(const std::string& folder, const std::string& name, int size) {
  std::mt19937 random(7);
  std::string pixels, labels;
  for (int i = 0; i < size; ++i) {
    const int label = int(random() % 10), row = 2 + label / 5 * 12, column = 1 + label % 5 * 5;
    std::string picture(28 * 28, '\0');
    for (auto& pixel : picture) pixel = char(random() % 60);
    for (int y = row; y < row + 8; ++y) picture.replace(std::size_t(y * 28 + column), 5, 5, char(250));
    pixels += picture;
    labels += char(label);
  }
  write_idx(folder + "/" + name + "-images-idx3-ubyte", {std::uint32_t(size), 28, 28}, pixels);
  write_idx(folder + "/" + name + "-labels-idx1-ubyte", {std::uint32_t(size)}, labels);
}

inline std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class TrainImage : public ::testing::Test {
 protected:
  void SetUp() override {
    write_dataset(folder_.path(), "train", 1000);
    write_dataset(folder_.path(), "t10k", 301);
  }
  // On `ranks` ranks; 0: the program alone.
  tutti::testing::Ended train(int ranks, const std::vector<std::string>& arguments) {
    return tutti::testing::run(command(ranks, arguments), kOneThread);
  }
  // The weights after training, without a variable but these.
  std::string weights_of(int ranks, std::vector<std::string> arguments,
                         const std::map<std::string, std::string>& variables = {}) {
    const std::string file = folder_.path() + "/weights.safetensors";
    arguments.insert(arguments.end(), {"--save", file});
    const auto ended = tutti::testing::run(command(ranks, arguments), variables);
    EXPECT_EQ(ended.code, 0) << ended.err;
    return bytes_of(file);
  }
  // `of_run`: further options of tutti run.
  std::vector<std::string> command(int ranks, const std::vector<std::string>& arguments,
                                   const std::vector<std::string>& of_run = {}) const {
    std::vector<std::string> line;
    if (ranks > 0) line = {TUTTI_COMMAND, "run", "-n", std::to_string(ranks)};
    line.insert(line.end(), of_run.begin(), of_run.end());
    if (ranks > 0) line.push_back("--");
    line.insert(line.end(), {TRAIN_IMAGE, "--data", folder_.path()});
    line.insert(line.end(), arguments.begin(), arguments.end());
    return line;
  }
  // The last line that rank 0 wrote to standard output, without tutti run's prefix.
  static nlohmann::ordered_json json_of(const tutti::testing::Ended& ended) {
    const auto lines = split(std::string(trim(ended.out)), '\n');
    const auto begin = lines.back().find('{');
    return begin == std::string::npos ? nlohmann::ordered_json()
                                      : nlohmann::ordered_json::parse(lines.back().substr(begin));
  }

  const std::map<std::string, std::string> kOneThread = {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}};
  const std::map<std::string, std::string> kThreeThreads = {{"OMP_NUM_THREADS", "3"}, {"OPENBLAS_NUM_THREADS", "3"}};
  tutti::testing::Folder folder_;
};

}  // namespace tutti::test
