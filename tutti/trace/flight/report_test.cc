#include "tutti/trace/flight/report.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <numeric>

namespace tutti::trace {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using State = FlightOperation::State;

constexpr std::int64_t kSecond = 1000000000;
constexpr std::int64_t kNow = 1000 * kSecond;  // of CLOCK_MONOTONIC, when all records were written

// The records of a job, told rank by rank: what each called, when, and whether that ended.
class Job {
 public:
  explicit Job(int ranks) {
    std::vector<int> all(static_cast<std::size_t>(ranks));
    std::iota(all.begin(), all.end(), 0);
    for (const int rank : all) {
      dumps_.push_back({.job = "j", .rank = rank, .world_size = ranks, .reasons = {"SIGUSR2"}, .wall = 5000});
      dumps_.back().monotonic = kNow;
    }
    add_group(1, "world", all);
  }
  void add_group(std::uint64_t id, const std::string& name, const std::vector<int>& members) {
    for (std::size_t i = 0; i < members.size(); ++i)
      dump(members[i]).groups.push_back({.id = id, .name = name, .rank = int(i), .global_ranks = members});
  }
  FlightDump& dump(int rank) { return dumps_[std::size_t(rank)]; }

  struct Call {
    std::string text;
    std::uint64_t sequence;
    State state = State::kCompleted;
    double seconds_ago = 10;  // it began; a completed one took no time
    std::string site = "/home/me/app/train.cc:7";
    int group = 0;
    int peer = -1;
  };
  void add(int rank, const Call& call) {
    FlightOperation o{.group = call.group, .exchange = call.peer >= 0, .sequence = call.sequence, .state = call.state};
    o.call = call.text;
    o.root = call.peer;
    o.started = kNow - std::int64_t(call.seconds_ago * double(kSecond));
    if (call.state == State::kCompleted) o.ended = o.started;
    if (call.state == State::kFailed) o.ended = kNow;
    if (call.state == State::kScheduled) std::swap(o.scheduled, o.started);
    o.site = call.site;
    dump(rank).operations.push_back(o);
  }
  void add_to_all(const Call& call) {
    for (FlightDump& dump : dumps_) add(dump.rank, call);
  }
  FlightReport report(const std::vector<int>& silent = {}) const {
    std::vector<FlightDump> told;
    for (const FlightDump& dump : dumps_)
      if (std::find(silent.begin(), silent.end(), dump.rank) == silent.end()) told.push_back(dump);
    return make_flight_report(told);
  }

 private:
  std::vector<FlightDump> dumps_;
};

TEST(FlightReport, ARankThatStoppedCalling) {
  Job job(4);
  job.add_to_all({"all_reduce (f32[4], sum)", 1, State::kCompleted, 40});
  for (const int rank : {0, 1, 3}) job.add(rank, {"barrier", 2, State::kStarted, 31, "/home/me/app/eval.cc:9"});
  const FlightReport report = job.report();
  EXPECT_TRUE(report.stuck);
  EXPECT_THAT(report.verdict,
              ElementsAre("ranks 0, 1, 3 wait in barrier #2 on group world for 31 s; rank 2 has not joined",
                          "rank 2 did not join: it has been in no call for 40 s; its last call was all_reduce #1 "
                          "(f32[4], sum) on group world at app/train.cc:7"));
  ASSERT_EQ(report.groups.size(), 1u);
  EXPECT_EQ(report.groups[0].completed_by_all, 1u);
  EXPECT_THAT(report.groups[0].missing, ElementsAre(2));
  EXPECT_THAT(report.groups[0].waiting, ElementsAre(0, 1, 3));
  EXPECT_EQ(to_text(report),
            "ranks 0, 1, 3 wait in barrier #2 on group world for 31 s; rank 2 has not joined\n"
            "rank 2 did not join: it has been in no call for 40 s; its last call was all_reduce #1 (f32[4], sum) "
            "on group world at app/train.cc:7\n"
            "\n"
            "job j, 4 ranks; records written because of\n"
            "  ranks 0-3: SIGUSR2\n"
            "\n"
            "group world, 4 ranks (0-3): all have completed all_reduce #1 (f32[4], sum)\n"
            "  ranks    done  now                  for   called at\n"
            "  0, 1, 3  #1    waits in barrier #2  31 s  app/eval.cc:9\n"
            "  2        #1    not in #2 yet        40 s  app/train.cc:7\n");
}

TEST(FlightReport, ARankWithoutARecord) {
  Job job(3);
  job.add_to_all({"barrier", 1});
  for (const int rank : {0, 2}) job.add(rank, {"barrier", 2, State::kFailed, 0.003}), job.dump(rank).failed = true;
  const FlightReport report = job.report({1});
  EXPECT_THAT(report.without_record, ElementsAre(1));
  EXPECT_THAT(
      report.verdict,
      ElementsAre("ranks 0, 2 wait in barrier #2 on group world for 3 ms; rank 1 left no record",
                  "rank 1 left no record: it was killed (SIGKILL), crashed, is stopped, or was not asked for one"));
  EXPECT_THAT(to_text(report), HasSubstr("  1      -     no record\n"));
}

TEST(FlightReport, ADifferentCall) {
  Job job(3);
  job.add_to_all({"barrier", 1});
  for (const int rank : {0, 2}) job.add(rank, {"all_reduce (f32[4], sum)", 2, State::kStarted, 2});
  job.add(1, {"all_reduce (f32[5], sum)", 2, State::kStarted, 2, "/home/me/app/eval.cc:77"});
  const FlightReport report = job.report();
  EXPECT_EQ(report.verdict.at(0),
            "different calls on group world: ranks 0, 2 called all_reduce #2 (f32[4], sum) at app/train.cc:7, rank 1 "
            "called all_reduce #2 (f32[5], sum) at app/eval.cc:77");
  EXPECT_EQ(report.verdict.size(), 1u);
  EXPECT_EQ(report.groups[0].mismatch, 2u);
}

// A rank that has not joined waits in another group: the one to look at is at the end of the chain.
TEST(FlightReport, FollowsTheWaitsThroughGroups) {
  Job job(3);
  job.add_group(2, "world/pair", {1, 2});
  job.add_to_all({"barrier", 1, State::kCompleted, 20});
  job.add(0, {"barrier", 2, State::kStarted, 9});
  job.add(1, {.text = "all_gather (u8[1])", .sequence = 1, .state = State::kStarted, .seconds_ago = 10, .group = 1});
  const FlightReport report = job.report();
  EXPECT_THAT(report.verdict,
              ElementsAre("rank 1 waits in all_gather #1 (u8[1]) on group world/pair for 10 s; rank 2 has not joined",
                          "rank 0 waits in barrier #2 on group world for 9 s; ranks 1, 2 have not joined",
                          "rank 2 did not join: it has been in no call for 20 s; its last call was barrier #1 on "
                          "group world at app/train.cc:7"));
}

TEST(FlightReport, ACircle) {
  Job job(2);
  job.add_group(2, "world/other", {0, 1});
  job.add(0, {.text = "barrier", .sequence = 1, .state = State::kStarted, .group = 0});
  job.add(1, {.text = "barrier", .sequence = 1, .state = State::kStarted, .site = "b.cc:2", .group = 1});
  EXPECT_EQ(job.report().verdict.back(),
            "ranks 0, 1 wait for one another: rank 0 in barrier #1 on group world at app/train.cc:7, rank 1 in barrier "
            "#1 on group world/other at b.cc:2");
}

TEST(FlightReport, ASendAndAReceiveThatDoNotMatch) {
  Job job(2);
  job.add(0, {.text = "send (f32[4], to 1, tag 7)", .sequence = 3, .state = State::kStarted, .peer = 1});
  job.add(1, {.text = "recv (f32[4], from 0, tag 8)", .sequence = 5, .state = State::kStarted, .peer = 0});
  const FlightReport report = job.report();
  EXPECT_TRUE(report.stuck);
  EXPECT_EQ(report.verdict.front(),
            "rank 0 waits in send #3 (f32[4], to 1, tag 7) on group world at app/train.cc:7 for 10 s");
  EXPECT_THAT(report.verdict.back(), HasSubstr("ranks 0, 1 wait for one another: rank 0 in send #3"));
}

TEST(FlightReport, EveryRankHasJoined) {
  Job job(2);
  job.add_to_all({"barrier", 1, State::kStarted, 4});
  EXPECT_THAT(job.report().verdict,
              ElementsAre("ranks 0, 1 wait in barrier #1 on group world for 4 s; every rank has joined: "
                          "data still moves, or a rank is stopped"));
}

// The root of a broadcast returns when it has sent.
TEST(FlightReport, SomeHaveCompletedIt) {
  Job job(3);
  job.add(0, {"broadcast (f32[4], root 0)", 1, State::kCompleted, 9});
  job.add(1, {"broadcast (f32[4], root 0)", 1, State::kStarted, 9});
  EXPECT_EQ(job.report().verdict.front(),
            "rank 1 waits in broadcast #1 (f32[4], root 0) on group world for 9 s; rank 2 has not joined; rank 0 has "
            "completed it");
}

// Records of a healthy job, one written a moment after the other.
TEST(FlightReport, AJobThatMoves) {
  Job job(2);
  job.add_to_all({"barrier", 1, State::kCompleted, 1});
  job.add(1, {"barrier", 2, State::kStarted, 0.01});
  const FlightReport report = job.report();
  EXPECT_FALSE(report.stuck);
  EXPECT_THAT(report.verdict, ElementsAre(AllOf(HasSubstr("nothing is stuck"), HasSubstr("longer than 10 ms"))));
}

TEST(FlightReport, NothingHappens) {
  Job job(2);
  job.add_to_all({"barrier", 1});
  EXPECT_THAT(job.report().verdict, ElementsAre("no rank waits for another"));
  EXPECT_THAT(Job(2).report().verdict, ElementsAre("no rank waits for another"));
  EXPECT_THAT(job.report({1}).verdict, Contains("rank 1 left no record"));
}

// Queued behind a call that waits; failed when the group ended, without having been begun.
TEST(FlightReport, WhatWasOnlyScheduledHasNotJoined) {
  Job job(2);
  job.add(0, {"barrier", 1, State::kStarted, 5});
  job.add(0, {"barrier", 2, State::kScheduled, 5});
  job.add(1, {"barrier", 1, State::kScheduled, 5});
  EXPECT_THAT(job.report().groups[0].missing, ElementsAre(1));
}

// The clocks of hosts start at different times; the time of day tells how they lie.
TEST(FlightReport, RecordsOfDifferentHostsAndTimes) {
  Job job(2);
  job.add_to_all({"barrier", 1, State::kCompleted, 50});
  job.add(0, {"barrier", 2, State::kStarted, 30});
  job.dump(1).wall += 100;
  EXPECT_THAT(job.report().verdict.front(), HasSubstr("rank 0 waits in barrier #2 on group world for 30 s"));
  EXPECT_THAT(job.report().verdict.back(), HasSubstr("in no call for 50 s"));
}

TEST(FlightReport, AGroupThatWasLeft) {
  Job job(2);
  job.add_to_all({"barrier", 1});
  job.add(0, {"barrier", 2, State::kStarted});
  job.dump(1).groups[0].left = true;
  EXPECT_THAT(to_text(job.report()), HasSubstr("has left the group"));
}

TEST(FlightReport, StaysShortForManyRanks) {
  Job job(512);
  job.add_to_all({"barrier", 1});
  for (int rank = 0; rank < 512; ++rank)
    if (rank != 77 && rank % 50 != 3) job.add(rank, {"barrier", 2, State::kStarted, 5 + rank * 1e-4});
  for (int rank = 0; rank < 512; ++rank) job.dump(rank).reasons = {"Timeout: rank " + std::to_string(rank)};
  const std::string text = to_text(job.report());
  EXPECT_LT(std::count(text.begin(), text.end(), '\n'), 25);
  EXPECT_THAT(text, AllOf(HasSubstr("rank 77 did not join"), HasSubstr("6 more ranks did not join"),
                          HasSubstr("and 508 more reasons")));
}

TEST(FlightReport, AsJson) {
  Job job(3);
  job.add_to_all({"barrier", 1});
  job.add(0, {"barrier", 2, State::kStarted, 5});
  const auto json = nlohmann::json::parse(to_json(job.report({2})));
  EXPECT_EQ(json["stuck"], true);
  EXPECT_EQ(json["without_record"], nlohmann::json({2}));
  EXPECT_EQ(json["groups"][0]["awaited"]["missing"], nlohmann::json({1}));
  EXPECT_EQ(json["groups"][0]["awaited"]["without_record"], nlohmann::json({2}));
  EXPECT_EQ(json["groups"][0]["completed_by_all"]["sequence"], 1);
  EXPECT_FALSE(json["groups"][0].contains("mismatch"));
  EXPECT_EQ(json["groups"][0]["rows"].size(), 3u);
  EXPECT_THAT(json["verdict"].get<std::vector<std::string>>(), Not(IsEmpty()));
}

}  // namespace
}  // namespace tutti::trace
