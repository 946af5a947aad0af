// examples/pipeline: its losses are the same alone and on any number of ranks, whatever the schedule; and its measured
// step can be drawn.
#include <gmock/gmock.h>

#include <filesystem>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr char kProgram[] = EXAMPLES "/pipeline";

using ::testing::HasSubstr;

std::vector<double> losses(int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> line;
  if (ranks > 0) line = {TUTTI_COMMAND, "run", "-n", std::to_string(ranks), "--"};
  line.push_back(kProgram);
  line.insert(line.end(), arguments.begin(), arguments.end());
  const auto ended = testing::run(line, {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}});
  EXPECT_EQ(ended.code, 0) << ended.err;
  std::vector<double> found;
  for (const auto& text : split(ended.out, '\n'))
    if (const auto at = text.find("loss "); at != std::string::npos) found.push_back(std::stod(text.substr(at + 5)));
  EXPECT_EQ(found.size(), 5u) << ended.out;
  return found;
}

TEST(PipelineExample, TheSameLossesOnAnyNumberOfRanks) {
  const auto alone = losses(0, {});
  ASSERT_EQ(alone.size(), 5u);
  EXPECT_LT(alone.back(), alone.front() / 5);
  for (const auto& [ranks, schedule] : {std::pair(2, "1f1b"), std::pair(2, "interleaved"), std::pair(4, "zb-h1"),
                                        std::pair(3, "fill-drain"), std::pair(2, "zb-v")}) {
    const auto together = losses(ranks, {schedule});
    ASSERT_EQ(together.size(), 5u);
    for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(together[i], alone[i], 2e-4 * alone[0]) << schedule;
  }
}

TEST(PipelineExample, AMeasuredStepIsDrawn) {
  const std::string file = ::testing::TempDir() + "pipeline_example_step.json";
  losses(2, {"1f1b", file});
  const auto ended = testing::run({TUTTI_COMMAND, "plan", "pipeline", "--measured", file});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("a step of examples/pipeline: bubble "));
  EXPECT_THAT(ended.out, HasSubstr("kept at most (activations of a rank's layers for one microbatch): 2 1"));
  std::filesystem::remove(file);
}

TEST(PipelineExample, AnUnknownScheduleIsRejected) {
  const auto ended = testing::run({kProgram, "1f1c"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("1f1c is no schedule"));
}

}  // namespace
}  // namespace tutti
