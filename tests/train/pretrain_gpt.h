#pragma once
// For the tests of pretrain_gpt as a program.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti::test {

using Words = std::vector<std::string>;

// In f64, and with dropout: its masks do not hang on the grid either.
inline const Words kModel = {"--num-layers",
                             "4",
                             "--hidden-size",
                             "32",
                             "--num-attention-heads",
                             "4",
                             "--seq-length",
                             "16",
                             "--max-position-embeddings",
                             "16",
                             "--vocab-size",
                             "98",
                             "--mock-data",
                             "--micro-batch-size",
                             "2",
                             "--global-batch-size",
                             "8",
                             "--lr",
                             "1e-2",
                             "--fp64",
                             "--eval-iters",
                             "1",
                             "--log-interval",
                             "1"};

inline Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

inline const std::map<std::string, std::string> kOneThread = {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}};

// On `ranks` ranks; 0: the program alone.
inline tutti::testing::Ended pretrain(int ranks, const Words& arguments) {
  Words line;
  if (ranks > 0) line = {TUTTI_COMMAND, "run", "-n", std::to_string(ranks), "--"};
  line.push_back(PRETRAIN_GPT);
  return tutti::testing::run(with(line, arguments), kOneThread);
}

// As two hosts with half of the ranks each, one after another.
inline tutti::testing::Ended pretrain_on_two_hosts(int ranks, const Words& arguments) {
  const std::string host = "export TUTTI_HOST_ID=host-$((RANK * 2 / WORLD_SIZE)); exec \"$@\"";
  return tutti::testing::run(
      with({TUTTI_COMMAND, "run", "-n", std::to_string(ranks), "--", "sh", "-c", host, "sh", PRETRAIN_GPT}, arguments),
      kOneThread);
}

// What stands between `name` and the next " |", of every line that has it.
inline Words fields(const tutti::testing::Ended& ended, const std::string& name) {
  Words found;
  for (const auto& line : split(ended.out, '\n')) {
    const auto at = line.find(name + ": ");
    if (at == std::string::npos) continue;
    const auto begin = at + name.size() + 2;
    found.push_back(line.substr(begin, line.find(" |", begin) - begin));
  }
  return found;
}

// Losses and norms of the steps, and losses of the evaluations.
inline Words curve(const tutti::testing::Ended& ended) {
  Words all;
  for (const char* name : {"lm loss", "grad norm", "params norm", "lm loss value"})
    all = with(all, fields(ended, name));
  return all;
}

struct OnGrid {
  const char* name;
  int ranks;
  Words options;
};
inline void PrintTo(const OnGrid& grid, std::ostream* out) { *out << grid.name; }

class PretrainGpt : public ::testing::Test {
 protected:
  PretrainGpt() { std::filesystem::create_directories(folder_); }
  ~PretrainGpt() override { std::filesystem::remove_all(folder_); }
  const std::string folder_ = ::testing::TempDir() + "tutti_pretrain_" + std::to_string(::getpid());
};

}  // namespace tutti::test
