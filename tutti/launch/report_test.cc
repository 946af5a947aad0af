#include "tutti/launch/report.h"

#include <gmock/gmock.h>

#include <csignal>
#include <nlohmann/json.hpp>

namespace tutti {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

Failure failure() {
  return {.culprit = {.rank = 2, .pid = 812, .exit = {.signal = SIGSEGV, .dumped = true}, .seconds = 3},
          .host = "a",
          .job = "j",
          .seen = {.step = 12, .doing = "step 12, for 3 s in all_reduce #42 on group dp"},
          .others = {{0, {.step = 12, .doing = "step 12, for 4 s in all_reduce #42 on group dp"}}},
          .backtrace = {"step(int) at train.cc:212", "main at train.cc:300"},
          .last_lines = {"loss 3"}};
}
const std::vector<WorkerEnd> kAll = {
    {.rank = 0, .pid = 810, .exit = {.signal = SIGTERM}, .stopped = true, .sent = SIGTERM},
    {.rank = 1, .pid = 811, .exit = {}},
    {.rank = 2, .pid = 812, .exit = {.signal = SIGSEGV}}};

TEST(Report, SaysWhereItWas) {
  const std::string text = failure_report(failure(), kAll);
  EXPECT_THAT(
      text,
      AllOf(HasSubstr(
                "rank 2 (pid 812 on a) was killed by SIGSEGV (segmentation fault), core dumped, 3 s after its start"),
            HasSubstr("\n[tutti]   at its end: step 12, for 3 s in all_reduce #42 on group dp"),
            HasSubstr("\n[tutti]   its stack, the innermost call first:\n[tutti]     step(int) at "
                      "train.cc:212\n[tutti]     main at"),
            HasSubstr("\n[2] loss 3"), HasSubstr("innocent: rank 0 was running"),
            HasSubstr("innocent: rank 1 had ended well before"),
            HasSubstr("\n[tutti]   rank 0 then: step 12, for 4 s in all_reduce #42")));
}

TEST(Report, OfAHangBeginsWithIt) {
  Failure hang = failure();
  hang.headline = "no rank of this node has got on for 5 min";
  hang.others[0].stack = {"poll in libc.so.6"};
  const std::string text = failure_report(hang, kAll);
  EXPECT_THAT(text, AllOf(HasSubstr("[tutti] the job failed: no rank of this node has got on for 5 min\n"),
                          HasSubstr("poll in libc.so.6"), Not(HasSubstr("after its start"))));
}

TEST(Report, ShowsEightOthersAtMost) {
  Failure many = failure();
  for (int rank = 3; rank < 20; ++rank) many.others[rank].doing = "in tutti::init()";
  const std::string text = failure_report(many, kAll);
  EXPECT_THAT(text, AllOf(HasSubstr("rank 9 then"), Not(HasSubstr("rank 10 then")),
                          HasSubstr("... (of all ranks: the JSON report)")));
}

TEST(Report, IsJsonAsWell) {
  Failure odd = failure();
  odd.last_lines.push_back("not UTF-8: \xff");
  odd.memory = "it had 1 GiB";
  const auto json = nlohmann::json::parse(failure_json(odd, kAll));
  EXPECT_EQ(json["job"], "j");
  EXPECT_EQ(json["rank"], 2);
  EXPECT_EQ(json["host"], "a");
  EXPECT_EQ(json["signal"], "SIGSEGV");
  EXPECT_EQ(json["core_dumped"], true);
  EXPECT_EQ(json["step"], 12);
  EXPECT_EQ(json["backtrace"][0], "step(int) at train.cc:212");
  EXPECT_EQ(json["memory"], "it had 1 GiB");
  EXPECT_EQ(json["ranks"][0]["role"], "innocent");
  EXPECT_EQ(json["ranks"][1]["role"], "innocent");
  EXPECT_EQ(json["ranks"][2]["role"], "culprit");
  EXPECT_EQ(json["ranks"][0]["step"], 12);
  EXPECT_EQ(json["last_lines"].size(), 2u);
}

}  // namespace
}  // namespace tutti
