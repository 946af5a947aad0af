// `tutti bench` as a user types it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

using testing::Ended;
using ::testing::HasSubstr;
using testing::run;
using ::testing::StartsWith;

TEST(BenchCommand, PrintsALineOfJsonForEachSize) {
  const Ended ended = run({"bench", "all_reduce", "-n", "2", "--json", "--max", "64", "--rounds", "1"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto lines = split(trim(ended.out), '\n');
  ASSERT_EQ(lines.size(), 2u) << ended.out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto line = nlohmann::json::parse(lines[i]);
    EXPECT_EQ(line["bytes"], i == 0 ? 8 : 64);
    EXPECT_EQ(line["ranks"], 2);
    EXPECT_EQ(line["wrong"], 0);
    EXPECT_GT(line["us"], 0);
    EXPECT_GT(line["p99_us"], 0);
  }
  EXPECT_EQ(ended.err, "");
}

TEST(BenchCommand, ATableForPeopleEndsWithAVerdict) {
  const Ended ended = run({"bench", "broadcast", "-n", "2", "--min", "4K", "--max", "4K", "--rounds", "1"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, StartsWith("broadcast, 2 ranks, f32, sum, heap memory"));
  EXPECT_THAT(ended.out, HasSubstr("verdict: broadcast of 4 KiB takes"));
}

TEST(BenchCommand, EveryOperationOverTcpAndFromPrivateMemory) {
  const Ended ended = run({"bench", "all", "-n", "2", "--json", "--min", "1M", "--max", "1M", "--rounds", "1",
                           "--warm-up", "0", "--transport", "tcp", "--memory", "private"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(split(trim(ended.out), '\n').size(), 14u) << ended.out;
  EXPECT_THAT(ended.out, HasSubstr("\"plan\":\"ring\""));
}

TEST(BenchCommand, HeedsTheTransportOfTheEnvironment) {
  const Ended ended = run({"bench", "all_reduce", "-n", "2", "--json", "--min", "1M", "--max", "1M", "--rounds", "1"},
                          {{"TUTTI_TRANSPORT", "tcp"}});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("\"plan\":\"ring\""));
}

TEST(BenchCommand, IsARankOfTheWorldAroundItWithoutN) {
  const Ended ended = run(
      {"run", "-n", "3", "-q", "--no-prefix", "--", TUTTI_TEST_COMMAND, "bench", "barrier", "--json", "--rounds", "1"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(nlohmann::json::parse(ended.out)["ranks"], 3);
}

TEST(BenchCommand, MistakesGetTheNearestNameAndExitCode2) {
  const auto mistake = [](std::vector<std::string> arguments, const std::string& words) {
    arguments.insert(arguments.begin(), "bench");
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, 2) << words;
    EXPECT_THAT(ended.err, HasSubstr(words));
    EXPECT_EQ(ended.out, "");
  };
  mistake({}, "which operation?");
  mistake({"all_redcue", "-n", "2"}, "did you mean all_reduce?");
  mistake({"all_reduce", "-n", "2", "--jsno"}, "did you mean --json?");
  mistake({"all_reduce", "-n", "zero"}, "-n needs a number from 1 to 4096, not 'zero'");
  mistake({"all_reduce", "-n", "2", "--dtype", "fp32"}, "did you mean f32?");
  mistake({"all_reduce", "-n", "2", "--op", "band"}, "the operation band is for integers and bool, not for f32");
  mistake({"all_reduce", "-n", "2", "--max", "lots"}, "--max needs a size");
  mistake({"all_reduce", "-n", "2", "--min", "1M", "--max", "1K"}, "--max needs a size of at least 1048576 bytes");
  mistake({"all_reduce", "-n", "2", "--algorithm", "rign"}, "did you mean ring?");
  mistake({"barrier", "-n", "2", "--algorithm", "ring"}, "there is no ring for barrier");
  mistake({"all_reduce", "-n", "2", "--json", "--min", "3", "--max", "3"}, "holds an element of f32");
  mistake({"all_reduce", "-n", "2", "--pin", "--no-pin"}, "contradict");
}

}  // namespace
}  // namespace tutti
