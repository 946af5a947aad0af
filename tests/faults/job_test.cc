// Jobs under `tutti run`: what the ranks say is what the agent found out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "tests/launch/running.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> job(int ranks, std::vector<std::string> what) {
  std::vector<std::string> arguments = {"run", "-n", std::to_string(ranks), "--grace", "100s", TUTTI_TEST_RANK};
  arguments.insert(arguments.end(), what.begin(), what.end());
  return arguments;
}

std::string line_of(const std::string& out, int rank, const std::string& containing) {
  const std::string prefix = "[" + std::to_string(rank) + "] ";
  for (std::size_t at = 0, end; (end = out.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string line = out.substr(at, end - at);
    if (line.starts_with(prefix) && line.find(containing) != std::string::npos) return line;
  }
  return {};
}

class Jobs : public ::testing::TestWithParam<const char*> {
 protected:
  const std::map<std::string, std::string> way_ = {{"TUTTI_TRANSPORT", GetParam()}, {"TUTTI_TIMEOUT", "1000s"}};
};

TEST_P(Jobs, TheAgentsSentenceIsTheRootCauseOfAll) {
  for (const int culprit : {0, 2}) {
    const Ended ended = run(job(4, {"kill", std::to_string(culprit)}), way_);
    EXPECT_EQ(ended.code, 137);
    const std::string sentence = "rank " + std::to_string(culprit) + " .pid [0-9]+ on [^ ]+. was killed by SIGKILL";
    EXPECT_THAT(ended.err, ContainsRegex("the job failed: " + sentence));
    for (int rank = 0; rank < 4; ++rank) {
      if (rank == culprit) continue;
      EXPECT_THAT(line_of(ended.out, rank, "root cause"),
                  ContainsRegex("on group world, rank [0-3]: .*; root cause: " + sentence))
          << ended.out << ended.err;
    }
  }
}

// One that ends with a code without leaving is lost like one that was killed.
TEST_P(Jobs, AnExitCodeIsARootCauseToo) {
  const Ended ended = run(job(3, {"exit", "1"}), way_);
  EXPECT_EQ(ended.code, 7);
  for (const int rank : {0, 2})
    EXPECT_THAT(line_of(ended.out, rank, "root cause"),
                ContainsRegex("; root cause: rank 1 .pid [0-9]+ on [^ ]+. exited with code 7"));
}

// The ranks know better than the agent, which sees exit codes.
TEST_P(Jobs, AMismatchStaysTheRootCause) {
  const Ended ended = run(job(3, {"pair", "1"}), way_);
  EXPECT_EQ(ended.code, 1);
  for (int rank = 0; rank < 3; ++rank)
    EXPECT_THAT(line_of(ended.out, rank, "Mismatch"),
                AllOf(HasSubstr("all_reduce #52 (f32[50000], max)"), HasSubstr("barrier #52"),
                      Not(HasSubstr("exited with code"))));
}

TEST_P(Jobs, AStoppedRankIsEndedWithTheRest) {
  auto way = way_;
  way["TUTTI_TIMEOUT"] = "1s";
  std::vector<std::string> arguments = job(3, {"stop", "2"});
  arguments[4] = "1s";  // the grace: awake again, it does not heed SIGTERM
  const Ended ended = run(arguments, way);
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(line_of(ended.out, 0, "Timeout: ") + line_of(ended.out, 1, "Timeout: "),
              HasSubstr("Timeout: all_reduce #52 (f32[50000], max) on group world"));
}

TEST_P(Jobs, NobodyOutlivesTheAgent) {
  Running running(job(3, {"loop"}), way_);
  running.await_out("ready", 3);
  kill(running.agent(), SIGKILL);
  EXPECT_EQ(running.wait().code, 137);
  EXPECT_TRUE(running.nobody_left()) << running.census();
}

TEST_P(Jobs, NobodyOutlivesTheKeeper) {
  Running running(job(3, {"loop"}), way_);
  running.await_out("ready", 3);
  running.send(SIGKILL);
  EXPECT_EQ(running.wait().code, 137);
  EXPECT_TRUE(running.nobody_left()) << running.census();
}

INSTANTIATE_TEST_SUITE_P(Ways, Jobs, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace tutti::testing
