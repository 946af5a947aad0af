// examples/ddp, alone and on three ranks: what they print, and that all ranks end with the same weights.
#include <gmock/gmock.h>

#include <set>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

// What stands behind `word` in each line that has it.
std::vector<std::string> behind(const std::string& text, const std::string& word) {
  std::vector<std::string> found;
  for (const auto& line : split(text, '\n')) {
    const auto at = line.find(word);
    if (at != std::string::npos) found.push_back(line.substr(at + word.size(), line.find(',', at) - at - word.size()));
  }
  return found;
}

std::string run(int ranks, const std::string& program) {
  std::vector<std::string> line;
  if (ranks > 0) line = {TUTTI_COMMAND, "run", "-n", std::to_string(ranks), "--"};
  line.push_back(EXAMPLES "/" + program);
  const auto ended = tutti::testing::run(line, {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}});
  EXPECT_EQ(ended.code, 0) << ended.err;
  const auto weights = behind(ended.out, "weights ");
  EXPECT_EQ(weights.size(), std::size_t(std::max(ranks, 1))) << ended.out;
  EXPECT_EQ(std::set<std::string>(weights.begin(), weights.end()).size(), 1u) << ended.out;
  for (const auto& loss : behind(ended.out, "loss ")) EXPECT_LT(std::stod(loss), 0.1) << ended.out;
  return ended.out;
}

TEST(DdpExamples, Ddp) {
  for (const int ranks : {0, 3}) run(ranks, "ddp");
}

TEST(DdpExamples, GradientAccumulation) {
  EXPECT_THAT(run(0, "gradient_accumulation"), HasSubstr("rank 0 of 1: 300 times gradients travelled"));
  EXPECT_THAT(run(3, "gradient_accumulation"), HasSubstr("rank 2 of 3: 300 times gradients travelled"));
}

TEST(DdpExamples, LocalSgd) {
  for (const int ranks : {0, 3}) EXPECT_THAT(run(ranks, "local_sgd"), HasSubstr("weights were averaged 51 times"));
}

TEST(DdpExamples, PowerSgd) {
  for (const int ranks : {0, 3}) {
    const auto factors = behind(run(ranks, "power_sgd"), ": ");
    for (const auto& factor : factors) EXPECT_GT(std::stod(factor), 20);
  }
}

TEST(DdpExamples, UnevenInputs) {
  run(0, "uneven_inputs");
  const auto said = run(3, "uneven_inputs");
  EXPECT_THAT(said, HasSubstr("rank 0 of 3: 300 batches of its own"));
  EXPECT_THAT(said, HasSubstr("rank 2 of 3: 200 batches of its own"));
}

}  // namespace
}  // namespace tutti
