#include "tutti/launch/reports/report.h"

#include <gmock/gmock.h>

#include <csignal>
#include <nlohmann/json.hpp>

#include "tutti/launch/reports/json_report.h"

namespace tutti::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

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
            HasSubstr("\n[2] loss 3"), HasSubstr("also ended: rank 0 was running"),
            HasSubstr("also ended: rank 1 had already ended with code 0"),
            HasSubstr("\n[tutti]   rank 0 then: step 12, for 4 s in all_reduce #42")));
}

// A program that catches the exception and leaves with a code of its own is no more at fault than one that does not.
TEST(Report, ARankThatFailedForWantOfAnotherIsNoCulprit) {
  Failure lost = failure();
  const std::vector<WorkerEnd> all = {{.rank = 0, .exit = {.code = 1}}, {.rank = 1, .exit = {.code = 1}}, kAll[2]};
  lost.others[0].for_others = true;
  EXPECT_THAT(failure_report(lost, all),
              AllOf(HasSubstr("also ended: rank 0 was running and ended because of it"),
                    HasSubstr("failed as well, because of it or by itself: rank 1 exited with code 1")));
}

TEST(Report, RepeatsWhatRanksHadSaidBefore) {
  Failure full = failure();
  full.others[0].alarm = "1 of 3 checkpoints was not saved";
  EXPECT_THAT(failure_report(full, kAll), HasSubstr("\n[tutti]   alarm of rank 0: 1 of 3 checkpoints was not saved"));
  EXPECT_EQ(nlohmann::json::parse(failure_json(full, kAll))["ranks"][0]["alarm"], "1 of 3 checkpoints was not saved");
}

TEST(Report, OfAHangBeginsWithIt) {
  Failure hang = failure();
  hang.headline = "no rank of this node has made progress for 5 min";
  hang.others[0].stack = {"poll in libc.so.6"};
  const std::string text = failure_report(hang, kAll);
  EXPECT_THAT(text, AllOf(HasSubstr("[tutti] the job failed: no rank of this node has made progress for 5 min\n"),
                          HasSubstr("poll in libc.so.6"), Not(HasSubstr("after its start"))));
}

TEST(Report, ShowsEightOthersAtMost) {
  Failure many = failure();
  for (int rank = 3; rank < 20; ++rank) many.others[rank].doing = "step " + std::to_string(rank);
  const std::string text = failure_report(many, kAll);
  EXPECT_THAT(text, AllOf(HasSubstr("rank 9 then"), Not(HasSubstr("rank 10 then")),
                          HasSubstr("... (of all ranks: the JSON report)")));
}

TEST(Report, WhatSeveralRanksSayAlikeStandsThereOnce) {
  Failure alike{.culprit = {.rank = 2, .exit = {.code = 2}}, .message = "Usage: unknown option --layers\nsee --help"};
  std::vector<WorkerEnd> all = {alike.culprit};
  for (const int rank : {0, 1, 3, 4, 5, 6, 7}) all.push_back({.rank = rank, .exit = {.code = 2}});
  for (const int rank : {1, 3, 4}) alike.others[rank].message = alike.message;
  for (const int rank : {5, 6}) {
    alike.others[rank].message = "Usage: no file";
    alike.others[rank].doing = "in tutti::init()", alike.others[rank].stack = {"poll in libc.so.6"};
    alike.others[rank].alarm = "1 of 3 checkpoints was not saved";
  }
  all.back().exit = all[1].exit = {.signal = SIGSEGV};
  EXPECT_THAT(
      failure_report(alike, all),
      AllOf(HasSubstr(
                "failed as well, because of it or by itself: ranks 0, 7 were killed by SIGSEGV (segmentation "
                "fault); ranks 1, 3, 4 exited with code 2 with the same message; ranks 5, 6 exited with code 2: Usage: "
                "no file\n"),
            HasSubstr("\n[tutti]   ranks 5, 6 then: in tutti::init()\n[tutti]       poll in libc.so.6\n"),
            HasSubstr("\n[tutti]   alarm of ranks 5, 6: 1 of 3 checkpoints was not saved")));
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
  EXPECT_EQ(json["ranks"][0]["role"], "also_ended");
  EXPECT_EQ(json["ranks"][1]["role"], "also_ended");
  EXPECT_EQ(json["ranks"][2]["role"], "culprit");
  EXPECT_EQ(json["ranks"][0]["step"], 12);
  EXPECT_EQ(json["last_lines"].size(), 2u);
}

TEST(Report, TheLimitOfFileSizesIsNamed) {
  EXPECT_THAT(failure_report({.culprit = {.exit = {.signal = SIGXFSZ}}}, {}),
              AllOf(HasSubstr("hint: a file would have grown past the limit of file sizes: ulimit -f unlimited"),
                    HasSubstr("memory that processes share counts as a file")));
}

TEST(Report, OneCulpritAndWhatElseEnded) {
  const WorkerEnd culprit{.rank = 2, .pid = 8123, .exit = {.signal = SIGKILL}, .seconds = 12.4};
  const std::vector<WorkerEnd> all = {
      {.rank = 0, .exit = {.signal = SIGTERM}, .stopped = true, .sent = SIGTERM},
      {.rank = 1, .exit = {.signal = SIGKILL}, .stopped = true, .sent = SIGKILL, .needed_kill = true},
      culprit,
      {.rank = 3},
      {.rank = 4, .exit = {.code = 1}},
      {.rank = 5, .exit = {.signal = SIGTERM}, .stopped = true, .suspended = true, .sent = SIGTERM}};
  const Failure failure{
      .culprit = culprit, .host = "alpha", .last_lines = {"step 1", "step 2"}, .log_folder = "/l", .grace = 5};
  EXPECT_EQ(failure_report(failure, all),
            "[tutti] the job failed: rank 2 (pid 8123 on alpha) was killed by SIGKILL, 12.4 s after its start\n"
            "[tutti]   its last 2 lines:\n"
            "[2] step 1\n"
            "[2] step 2\n"
            "[tutti]   all of its output: stdout.log and stderr.log in /l\n"
            "[tutti]   suspended: rank 5 was stopped (SIGSTOP or a debugger): the others may have waited for it\n"
            "[tutti]   failed as well, because of it or by itself: rank 4 exited with code 1\n"
            "[tutti]   also ended: rank 0 was running and ended because of it\n"
            "[tutti]   also ended: rank 1 ran for another 5 s after SIGTERM and needed SIGKILL\n"
            "[tutti]   also ended: rank 3 had already ended with code 0\n"
            "[tutti]   hint: tutti did not send it: a kill -9 by hand, or the out-of-memory killer (see dmesg)");
  Failure stopped = failure;  // after --hang-timeout, for example
  stopped.culprit.sent = SIGKILL;
  EXPECT_THAT(failure_report(stopped, all), Not(HasSubstr("hint: ")));
  Failure hungry = failure;
  hungry.out_of_memory = true;
  EXPECT_THAT(failure_report(hungry, all), HasSubstr("out-of-memory killer struck"));
}

TEST(Report, GlooOnALoopbackAddressGetsAHint) {
  const auto report = [](const std::string& message, const std::string& last_line) {
    return failure_report({.culprit = {.rank = 1, .exit = {.code = 1}}, .message = message, .last_lines = {last_line}},
                          {});
  };
  for (const std::string text :
       {"RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:144] Connection refused, "
        "remote=[127.0.1.1]:21123",
        "RuntimeError: [./gloo/transport/tcp/pair.cc:799] connect [127.0.1.1]:4513: Connection refused"}) {
    EXPECT_THAT(report("", text), HasSubstr("hint: Gloo took a loopback address for that of a host"));
    EXPECT_THAT(report(text, "the end"), HasSubstr("hint: Gloo took a loopback address for that of a host"));
  }
  EXPECT_THAT(report("", "gloo: Connection refused, remote=[10.0.0.1]:21123"), Not(HasSubstr("hint: ")));
}

TEST(Report, RanksThatFailedAsWellAreDistinguishedFromStoppedOnes) {
  const WorkerEnd culprit{.rank = 0, .exit = {.code = 3}};
  Failure failure{.culprit = culprit};
  failure.others[2].message = "ValueError: the loss is NaN";
  failure.others[3].message = "PeerLost: all_reduce #4 on group world, rank 3: rank 0 has died";
  failure.others[4].message = "Aborted: rank 0 (pid 7 on a) exited with code 3";
  const auto role = [&](WorkerEnd end) {
    end.stopped = true;
    return role_of(end, failure);
  };
  // As Python ranks report the end of another one: the backend tutti, Gloo, NCCL and the store of PyTorch.
  int rank = 10;
  for (const std::string lost :
       {"torch.distributed.DistBackendError: tutti: PeerLost: all_reduce #4 on group world, rank 3: rank 0 has died",
        "torch.distributed.DistBackendError: tutti: Aborted: rank 0 (pid 7 on a) exited with code 3",
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer "
        "[127.0.0.1]:47113",
        "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:598] Connection reset by peer [10.0.0.1]:1",
        "torch.distributed.DistBackendError: NCCL error in: /pytorch/ProcessGroupNCCL.cpp:3690, remote process exited "
        "or there was a network error, NCCL version 2.27.5",
        "torch.distributed.DistNetworkError: Failed to recv, got 0 bytes. Connection was likely closed. Did the remote "
        "server shutdown or crash?"}) {
    failure.others[rank].message = lost + "\nTraceback (most recent call last):\n  File \"a.py\", line 3\n" + lost;
    EXPECT_EQ(role({.rank = rank++, .exit = {.code = 1}}), FailureRole::kStopped) << lost;
  }
  // A failure of the rank itself, whatever its words and the exceptions that led to it.
  for (const std::string own : {"ConnectionResetError: [Errno 104] Connection reset by peer",
                                "ValueError: rank 3\ntorch.distributed.DistBackendError: tutti: PeerLost: rank 0"}) {
    failure.others[rank].message = own;
    EXPECT_EQ(role({.rank = rank++, .exit = {.code = 1}}), FailureRole::kFailedAsWell) << own;
  }
  failure.others.erase(failure.others.find(10), failure.others.end());
  EXPECT_EQ(role(culprit), FailureRole::kCulprit);
  // A signal that tutti did not send; and the one that it did.
  EXPECT_EQ(role({.rank = 1, .exit = {.signal = SIGSEGV}}), FailureRole::kFailedAsWell);
  EXPECT_EQ(role({.rank = 1, .exit = {.signal = SIGSEGV}, .sent = SIGTERM}), FailureRole::kFailedAsWell);
  EXPECT_EQ(role({.rank = 1, .exit = {.signal = SIGKILL}, .sent = SIGTERM}), FailureRole::kFailedAsWell);
  EXPECT_EQ(role({.rank = 1, .exit = {.signal = SIGTERM}, .sent = SIGTERM}), FailureRole::kStopped);
  EXPECT_EQ(role({.rank = 1, .exit = {.signal = SIGKILL}, .sent = SIGKILL, .needed_kill = true}), FailureRole::kKilled);
  // A code before it was told to stop; as its answer to that; and with words that explain it.
  EXPECT_EQ(role({.rank = 1, .exit = {.code = 1}}), FailureRole::kFailedAsWell);
  EXPECT_EQ(role({.rank = 2, .exit = {.code = 1}}), FailureRole::kFailedAsWell);
  EXPECT_EQ(role({.rank = 1, .exit = {.code = 1}, .sent = SIGTERM}), FailureRole::kStopped);
  EXPECT_EQ(role({.rank = 3, .exit = {.code = 1}}), FailureRole::kStopped);
  EXPECT_EQ(role({.rank = 4, .exit = {.code = 1}}), FailureRole::kStopped);
  EXPECT_EQ(role({.rank = 1, .exit = {.code = 75}}), FailureRole::kStopped);
  EXPECT_EQ(role({.rank = 1}), FailureRole::kStopped);
  EXPECT_EQ(role_of({.rank = 1}, failure), FailureRole::kEnded);
  EXPECT_THAT(
      failure_report(failure, {culprit,
                               {.rank = 1, .exit = {.signal = SIGSEGV}, .stopped = true},
                               {.rank = 2, .exit = {.code = 1}, .stopped = true}}),
      HasSubstr("failed as well, because of it or by itself: rank 1 was killed by SIGSEGV (segmentation fault); "
                "rank 2 exited with code 1: ValueError: the loss is NaN"));
  std::vector<WorkerEnd> many = {culprit};
  for (int rank = 5; rank < 20; ++rank) many.push_back({.rank = rank, .exit = {.code = rank}, .stopped = true});
  EXPECT_THAT(failure_report(failure, many), HasSubstr("rank 12 exited with code 12; and ranks 13-19"));
}

TEST(Report, ACodeThatNoSignalGivesIsNoShellsWord) {
  EXPECT_THAT(failure_report({.culprit = {.exit = {.code = 143}}}, {}),
              HasSubstr("a shell exits with this code when its command was killed by SIGTERM"));
  for (const int code : {128, 200, 255})
    EXPECT_THAT(failure_report({.culprit = {.exit = {.code = code}}}, {}), Not(HasSubstr("hint")));
}

TEST(Report, TakesNoTerminalOver) {
  const Failure evil{.culprit = {.exit = {.code = 1}},
                     .headline = "no rank: group \u202e",
                     .message = "bell \a\nand \u009b31m",
                     .seen = {.doing = "step \033[2J"},
                     .last_lines = {"a rank's own \033[31mred\033[0m"}};
  const std::string text = failure_report(evil, {});
  EXPECT_THAT(text, AllOf(HasSubstr("group ?\n"), HasSubstr("its message: bell ?\n[tutti]     and ?31m\n"),
                          HasSubstr("step ?[2J"), HasSubstr("\033[31mred")));
}

TEST(Report, SeveralLinesOfAMessageStandInTheReport) {
  EXPECT_THAT(failure_report({.culprit = {.exit = {.code = 1}}, .message = "Traceback:\n  f()\nValueError"}, {}),
              HasSubstr("\n[tutti]   its message: Traceback:\n[tutti]       f()\n[tutti]     ValueError\n"));
}

TEST(Report, LastLinesThatAreInTheMessageStandThereOnce) {
  Failure failure{.culprit = {.exit = {.code = 1}},
                  .message = "ValueError: x\nTraceback (most recent call last):\n  f()\nValueError: x",
                  .last_lines = {"step 1", "[rank0]: Traceback (most recent call last):", "[rank0]:   f()",
                                 "[rank0]: ValueError: x"}};
  EXPECT_THAT(failure_report(failure, {}), HasSubstr("\n[tutti]     ValueError: x\n[tutti]   its last line besides "
                                                     "that:\n[0] step 1"));
  failure.last_lines.pop_front();
  EXPECT_THAT(failure_report(failure, {}), AllOf(Not(HasSubstr("last line")), Not(HasSubstr("no output"))));
}

TEST(Report, WordsOfAnEnd) {
  EXPECT_EQ(to_string(Exit{}), "exited with code 0");
  EXPECT_EQ(to_string(Exit{.code = 3}), "exited with code 3");
  EXPECT_EQ(to_string(Exit{.signal = SIGSEGV, .dumped = true}),
            "was killed by SIGSEGV (segmentation fault), core dumped");
  EXPECT_EQ((Exit{.signal = SIGTERM}).shell_code(), 143);
  EXPECT_THAT(signal_name(63), StartsWith("signal 63"));
}

}  // namespace
}  // namespace tutti::launch
