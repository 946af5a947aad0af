// examples/parallelize: its losses are the same alone and on any number of ranks, also where the plan has stages for
// want of memory.
#include <gmock/gmock.h>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr char kProgram[] = EXAMPLES "/parallelize";

using ::testing::HasSubstr;
using ::testing::SizeIs;

testing::Ended run_on(int ranks, const std::vector<std::string>& arguments) {
  std::vector<std::string> line;
  if (ranks > 0) line = {TUTTI_COMMAND, "run", "-n", std::to_string(ranks), "--"};
  line.push_back(kProgram);
  line.insert(line.end(), arguments.begin(), arguments.end());
  return testing::run(line);
}

std::vector<double> losses_in(const std::string& text) {
  std::vector<double> found;
  for (const auto& line : split(text, '\n'))
    if (const auto at = line.find("loss "); at != std::string::npos) found.push_back(std::stod(line.substr(at + 5)));
  return found;
}

TEST(ParallelizeExample, TheSameLossesOnAnyNumberOfRanks) {
  const auto alone = losses_in(run_on(0, {}).out);
  ASSERT_THAT(alone, SizeIs(5));
  EXPECT_LT(alone.back(), alone.front() / 5);
  for (const auto& [ranks, kilobytes] : {std::pair(2, "0"), std::pair(2, "140"), std::pair(4, "140")}) {
    const auto ended = run_on(ranks, {kilobytes});
    ASSERT_EQ(ended.code, 0) << ended.err;
    if (std::string(kilobytes) != "0") {
      EXPECT_THAT(ended.out, HasSubstr("stages (blocks 0-"));
    }
    const auto together = losses_in(ended.out);
    ASSERT_THAT(together, SizeIs(5));
    for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(together[i], alone[i], 2e-4 * alone[0]) << ended.out;
  }
}

TEST(ParallelizeExample, AModelThatFitsNowhereIsRefused) {
  const auto ended = run_on(2, {"10"});
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.err, HasSubstr("no plan fits 9.77 KiB of a rank"));
}

TEST(ParallelizeExample, WhatIsNoNumberIsRefused) {
  const auto ended = run_on(0, {"12x"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("12x is no number of kilobytes"));
}

}  // namespace
}  // namespace tutti
