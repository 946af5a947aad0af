// Jobs under `tutti run`: what the ranks say is what the agent found out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/launch/running.h"
#include "tutti/base/deadline.h"
#include "tutti/base/sanitizers.h"

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

TEST_P(Jobs, NoProcessOutlivesTheAgent) {
  Running running(job(3, {"loop"}), way_);
  running.await_out("ready", 3);
  kill(running.agent(), SIGKILL);
  EXPECT_EQ(running.wait().code, 137);
  EXPECT_TRUE(running.nobody_left()) << running.census();
}

TEST_P(Jobs, NoProcessOutlivesTheSupervisor) {
  Running running(job(3, {"loop"}), way_);
  running.await_out("ready", 3);
  running.send(SIGKILL);
  EXPECT_EQ(running.wait().code, 137);
  EXPECT_TRUE(running.nobody_left()) << running.census();
}

// What the report says, and what `tutti flight` then says.
TEST_P(Jobs, FlightRecordsOfAJobThatFailed) {
  const Folder folder;
  auto way = way_;
  way["TUTTI_FLIGHT_DIR"] = folder.path();
  EXPECT_EQ(run(job(3, {"pair", "1"}), way).code, 1);
  const Ended told = run({"flight", folder.path()});
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_THAT(told.out,
              AllOf(ContainsRegex("^different calls on group world: ranks 0, 2 called all_reduce #52 .f32.50000., max. "
                                  "at faults/rank.cc:[0-9]+, rank 1 called barrier #52 at faults/rank.cc:[0-9]+\n"),
                    HasSubstr("group world, 3 ranks (0-2): all have completed all_reduce #51 (f32[50000], max)\n")));
  const auto json = nlohmann::json::parse(run({"flight", "--json", folder.path()}).out);
  EXPECT_EQ(json["groups"][0]["mismatch"]["sequence"], 52);
  EXPECT_EQ(json["stuck"], true);
}

TEST_P(Jobs, TheReportSaysWhereTheFlightRecordsAre) {
  const Folder folder;
  auto way = way_;
  way["TMPDIR"] = folder.path();
  std::vector<std::string> arguments = job(3, {"kill", "1"});
  arguments.insert(arguments.begin() + 1, {"--job-id", "mine"});
  const std::string temporary = folder.path() + "/tutti-flight-" + std::to_string(::geteuid()) + "-mine";
  EXPECT_THAT(run(arguments, way).err, HasSubstr("[tutti]   flight records of ranks 0, 2: tutti flight " + temporary +
                                                 " shows which rank waited for which"));
  const Ended told = run({"flight", temporary});
  EXPECT_EQ(told.code, 0);
  EXPECT_THAT(told.out, HasSubstr("rank 1 left no record: it was killed (SIGKILL)"));

  arguments.insert(arguments.begin() + 1, {"--log-dir", folder.path() + "/logs"});
  EXPECT_THAT(run(arguments, way).err,
              HasSubstr("tutti flight " + folder.path() + "/logs/mine/attempt_0/flight shows"));
}

// A rank that computes for ever learns from tutti run alone that the others gave up, and writes its record too.
TEST_P(Jobs, ARankInNoCallLeavesARecordWhenTheOthersFail) {
  const Folder folder;
  auto way = way_;
  way["TUTTI_FLIGHT_DIR"] = folder.path();
  way["TUTTI_TIMEOUT"] = "1s";
  std::vector<std::string> arguments = job(3, {"idle", "1"});
  arguments[4] = "1s";  // the grace: it does not heed SIGTERM
  const Ended ended = run(arguments, way);
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("flight records of ranks 0-2: tutti flight " + folder.path()));
  EXPECT_THAT(run({"flight", folder.path()}).out,
              ContainsRegex("rank 1 did not join: it has been in no call for [^;]*; its last call was all_reduce "
                            "#51 .f32.50000., max. on group world at faults/rank.cc:[0-9]+\n"));
}

// A rank that computes for ever: `kill -USR2` of tutti run, and the records of all say whom to look at.
TEST_P(Jobs, ASignalAsksAllRanksOfAHangingJob) {
#if TUTTI_TSAN
  GTEST_SKIP() << "ThreadSanitizer keeps a signal back while the thread waits in a futex that it does not know of";
#endif
  const Folder folder;
  auto way = way_;
  way["TUTTI_FLIGHT_DIR"] = folder.path();
  Running running(job(3, {"idle", "1"}), way);
  running.await_out("idle");
  Ended told;
  // The others reach their call when they do, and count as stuck when they have waited for a while.
  for (const Deadline patience = Deadline::after_seconds(60);
       told.out.find("did not join") == std::string::npos && !patience.expired();) {
    kill(running.agent(), SIGUSR2);
    for (int rank = 0; rank < 3; ++rank)
      running.await_err("[tutti rank " + std::to_string(rank) + "] the flight record of this rank is " + folder.path() +
                        "/flight-rank" + std::to_string(rank) + ".json");
    told = run({"flight", folder.path()});
  }
  EXPECT_THAT(told.out,
              ContainsRegex("^ranks 0, 2 wait in all_reduce #52 .f32.50000., max. on group world for [^;]*; rank 1 has "
                            "not joined\nrank 1 did not join: it has been in no call for [^;]*; its last call was "
                            "all_reduce #51 .f32.50000., max. on group world at faults/rank.cc:[0-9]+\n"));
  EXPECT_FALSE(running.is_over());
}

INSTANTIATE_TEST_SUITE_P(Ways, Jobs, ::testing::Values("shm", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST(FlightCommand, SaysWhatIsWrong) {
  const Folder folder;
  Ended told = run({"flight"});
  EXPECT_EQ(told.code, 2);
  EXPECT_THAT(
      told.err,
      HasSubstr(
          "tutti flight: no folder given. Usage: tutti flight DIR... [OPTIONS]\nhint: for example: tutti flight "));
  told = run({"flight", folder.path() + "/none"});
  EXPECT_EQ(told.code, 2);
  EXPECT_THAT(told.err, HasSubstr("there is no folder " + folder.path() + "/none\nhint: ranks make it when"));
  told = run({"flight", folder.path()});
  EXPECT_EQ(told.code, 2);
  EXPECT_THAT(told.err, HasSubstr("there is no flight record (flight-rank0.json, ...) in " + folder.path()));
  std::ofstream(folder.path() + "/flight-rank0.json") << "{}";
  told = run({"flight", folder.path()});
  EXPECT_EQ(told.code, 1);
  EXPECT_THAT(told.err, AllOf(HasSubstr("flight-rank0.json is not a flight record of tutti\n"),
                              HasSubstr("none of the flight records could be read")));
  told = run({"flight", "--jsn", folder.path()});
  EXPECT_EQ(told.code, 2);
  EXPECT_THAT(told.err, HasSubstr("unknown option --jsn\nhint: did you mean --json?"));
  EXPECT_EQ(run({"flight", "--help"}).code, 0);
}

// A damaged file is told of, and the others are read.
TEST(FlightCommand, OneDamagedFile) {
  const Folder folder;
  EXPECT_EQ(run(job(2, {"pair", "1"}), {{"TUTTI_FLIGHT_DIR", folder.path()}}).code, 1);
  std::filesystem::resize_file(folder.path() + "/flight-rank1.json", 2000);
  const Ended told = run({"flight", folder.path()});
  EXPECT_EQ(told.code, 1);
  EXPECT_THAT(told.err, HasSubstr("flight-rank1.json is truncated or damaged: "));
  EXPECT_THAT(told.out, HasSubstr("no record from rank 1"));
}

TEST(FlightCommand, ARecordThatCannotBeWrittenIsReported) {
  const Folder folder;
  std::ofstream(folder.path() + "/file") << "x";
  const Ended ended = run(job(2, {"pair", "1"}), {{"TUTTI_FLIGHT_DIR", folder.path() + "/file/below"}});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("cannot make the folder " + folder.path() + "/file/below"));
  EXPECT_THAT(ended.err, Not(HasSubstr("shows which rank waited for which")));
}

}  // namespace
}  // namespace tutti::testing
