// Lines, the console that never blocks, and the words of the report.
#include "tutti/launch/output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <fstream>

#include "tutti/launch/console.h"
#include "tutti/launch/lines.h"
#include "tutti/launch/out_of_memory.h"
#include "tutti/launch/report.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(LineSplitter, WholeLinesInAnyPieces) {
  const std::string text = "first\n\nthird\nlast";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    LineSplitter splitter;
    std::vector<std::string> lines;
    const auto sink = [&](std::string_view line) { lines.emplace_back(line); };
    for (std::size_t at = 0; at < text.size(); at += piece)
      splitter.feed(std::string_view(text).substr(at, piece), sink);
    EXPECT_EQ(lines.size(), 3u);
    splitter.flush(sink);
    splitter.flush(sink);
    EXPECT_THAT(lines, ElementsAre("first", "", "third", "last"));
  }
}

TEST(LineSplitter, EndlessLinesComeInPieces) {
  LineSplitter splitter;
  std::vector<std::size_t> sizes;
  const auto sink = [&](std::string_view line) { sizes.push_back(line.size()); };
  splitter.feed(std::string(LineSplitter::kLongest * 2 + 10, 'x'), sink);
  splitter.feed("\n", sink);
  EXPECT_THAT(sizes, ElementsAre(LineSplitter::kLongest, LineSplitter::kLongest, 10u));
}

TEST(Tail, KeepsTheLast) {
  Tail tail(2);
  for (const char* line : {"a", "b", "c"}) tail.add(line);
  EXPECT_THAT(tail.lines(), ElementsAre("b", "c"));
}

struct PipePair {
  PipePair() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
    read = Fd(ends[0]), write = Fd(ends[1]);
  }
  std::string take() {
    set_nonblocking(read.get(), true).or_throw();
    std::string text;
    char buffer[65536];
    for (ssize_t got; (got = ::read(read.get(), buffer, sizeof buffer)) > 0;) text.append(buffer, std::size_t(got));
    return text;
  }
  Fd read, write;
};

TEST(Console, HoldsBackThenDropsThenSaysHowMuch) {
  PipePair pipe;
  Console console(pipe.write.get(), {.queue_bytes = 1 << 20, .stall = std::chrono::milliseconds(20)});
  const std::string line(999, 'x');
  for (int i = 0; i < 2000; ++i) console.write_line("", line);
  console.pump();
  EXPECT_TRUE(console.congested());  // a full pipe: whoever reads from the ranks waits
  const Deadline patience = Deadline::after_seconds(60);
  while (console.congested() && !patience.expired()) console.pump();
  EXPECT_FALSE(console.congested());  // not for ever
  console.write_line("", "lost");
  console.write_line("", "lost");
  EXPECT_EQ(console.dropped_lines(), 2u);
  std::string seen;
  while (console.wants_write()) {
    seen += pipe.take();
    console.pump();
  }
  console.write_line("", "after");
  console.pump();
  seen += pipe.take();
  EXPECT_THAT(seen,
              AllOf(Not(HasSubstr("lost")), HasSubstr("[tutti] 2 lines were dropped because nobody read this output"),
                    HasSubstr("after\n")));
}

TEST(Console, AClosedReaderIsNoError) {
  std::signal(SIGPIPE, SIG_IGN);
  PipePair pipe;
  pipe.read.reset();
  Console console(pipe.write.get());
  console.write_line("", "into the void");
  console.pump();
  EXPECT_TRUE(console.closed());
  EXPECT_FALSE(console.wants_write());
}

TEST(ParseRanks, ListsAndRanges) {
  EXPECT_THAT(*parse_ranks("0,2,5-7", "--x"), ElementsAre(0, 2, 5, 6, 7));
  for (const char* wrong : {"", "a", "1-", "-1", "3-1", "1,,2", "0-99999999999"})
    EXPECT_FALSE(parse_ranks(wrong, "--x").ok()) << wrong;
}

TEST(Report, OneCulpritAndTheInnocent) {
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
            "[tutti]   innocent: rank 0 was running and ended because of it\n"
            "[tutti]   innocent: rank 1 ran on for 5 s after SIGTERM and needed SIGKILL\n"
            "[tutti]   innocent: rank 3 had ended well before\n"
            "[tutti]   hint: nothing of tutti sent it: somebody's kill -9, or the out-of-memory killer (dmesg tells)");
  Failure hungry = failure;
  hungry.out_of_memory = true;
  EXPECT_THAT(failure_report(hungry, all), HasSubstr("out-of-memory killer struck"));
}

TEST(Report, WhoFailedAsWellIsToldFromWhoWasStopped) {
  const WorkerEnd culprit{.rank = 0, .exit = {.code = 3}};
  Failure failure{.culprit = culprit};
  failure.others[2].message = "ValueError: the loss is NaN";
  failure.others[3].message = "PeerLost: all_reduce #4 on group world, rank 3: rank 0 has died";
  failure.others[4].message = "Aborted: rank 0 (pid 7 on a) exited with code 3";
  const auto part = [&](WorkerEnd end) {
    end.stopped = true;
    return part_of(end, failure);
  };
  EXPECT_EQ(part(culprit), Part::kCulprit);
  // A signal that tutti did not send; and the one that it did.
  EXPECT_EQ(part({.rank = 1, .exit = {.signal = SIGSEGV}}), Part::kFailedAsWell);
  EXPECT_EQ(part({.rank = 1, .exit = {.signal = SIGSEGV}, .sent = SIGTERM}), Part::kFailedAsWell);
  EXPECT_EQ(part({.rank = 1, .exit = {.signal = SIGKILL}, .sent = SIGTERM}), Part::kFailedAsWell);
  EXPECT_EQ(part({.rank = 1, .exit = {.signal = SIGTERM}, .sent = SIGTERM}), Part::kStopped);
  EXPECT_EQ(part({.rank = 1, .exit = {.signal = SIGKILL}, .sent = SIGKILL, .needed_kill = true}), Part::kKilled);
  // A code before it was told to stop; as its answer to that; and with words that explain it.
  EXPECT_EQ(part({.rank = 1, .exit = {.code = 1}}), Part::kFailedAsWell);
  EXPECT_EQ(part({.rank = 2, .exit = {.code = 1}}), Part::kFailedAsWell);
  EXPECT_EQ(part({.rank = 1, .exit = {.code = 1}, .sent = SIGTERM}), Part::kStopped);
  EXPECT_EQ(part({.rank = 3, .exit = {.code = 1}}), Part::kStopped);
  EXPECT_EQ(part({.rank = 4, .exit = {.code = 1}}), Part::kStopped);
  EXPECT_EQ(part({.rank = 1, .exit = {.code = 75}}), Part::kStopped);
  EXPECT_EQ(part({.rank = 1}), Part::kStopped);
  EXPECT_EQ(part_of({.rank = 1}, failure), Part::kEnded);
  EXPECT_THAT(
      failure_report(failure, {culprit,
                               {.rank = 1, .exit = {.signal = SIGSEGV}, .stopped = true},
                               {.rank = 2, .exit = {.code = 1}, .stopped = true}}),
      HasSubstr("failed as well, because of it or by itself: rank 1 was killed by SIGSEGV (segmentation fault); "
                "rank 2 exited with code 1: ValueError: the loss is NaN"));
  std::vector<WorkerEnd> many = {culprit};
  for (int rank = 5; rank < 20; ++rank) many.push_back({.rank = rank, .exit = {.code = 1}, .stopped = true});
  EXPECT_THAT(failure_report(failure, many), HasSubstr("rank 12 exited with code 1; and ranks 13-19"));
}

// A log file on a full disk.
TEST(WorkerOutput, ALogThatEndsIsToldOnStandardError) {
  std::string folder = (std::string)::testing::TempDir() + "tutti_log_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(symlink("/dev/full", (folder + "/stdout.log").c_str()), 0);
  int out[2], err[2];
  ASSERT_EQ(pipe(out) | pipe(err), 0);
  {
    Console output(out[1]), errors(err[1]);
    auto worker =
        WorkerOutput::create(0, {.log_dir = folder}, {.output = true, .errors = true}, folder, output, errors);
    ASSERT_TRUE(worker.ok());
    worker->take(WorkerOutput::kOutput, "one\n");
    worker->take(WorkerOutput::kOutput, "two\n");
    output.pump(), errors.pump();
  }
  const auto all_of = [](int(&ends)[2]) {
    close(ends[1]);
    char text[4096];
    const ssize_t size = read(ends[0], text, sizeof text);
    close(ends[0]);
    return std::string(text, std::size_t(std::max<ssize_t>(size, 0)));
  };
  EXPECT_EQ(all_of(out), "[0] one\n[0] two\n");
  const std::string told = all_of(err);
  EXPECT_THAT(told, AllOf(StartsWith("[tutti] "), HasSubstr("No space left on device"), HasSubstr("--log-dir")));
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << "once";
  unlink((folder + "/stdout.log").c_str());
  unlink((folder + "/stderr.log").c_str());
  rmdir(folder.c_str());
}

TEST(Report, WordsOfAnEnd) {
  EXPECT_EQ(to_string(Exit{}), "ended well");
  EXPECT_EQ(to_string(Exit{.code = 3}), "exited with code 3");
  EXPECT_EQ(to_string(Exit{.signal = SIGSEGV, .dumped = true}),
            "was killed by SIGSEGV (segmentation fault), core dumped");
  EXPECT_EQ((Exit{.signal = SIGTERM}).shell_code(), 143);
  EXPECT_THAT(signal_name(63), StartsWith("signal 63"));
}

TEST(Report, ErrorFilesOfTorchelastic) {
  std::string path = (std::string)::testing::TempDir() + "tutti_error_XXXXXX";
  close(mkstemp(path.data()));
  const auto message = [&](const std::string& text) {
    std::ofstream(path) << text;
    return error_file_message(path);
  };
  EXPECT_EQ(message(R"({"message": {"message": "ValueError: x", "extraInfo": {}}})"), "ValueError: x");
  EXPECT_EQ(message(R"({"message": "plain", "timestamp": 1})"), "plain");
  EXPECT_EQ(message("not json\n"), "not json");
  EXPECT_EQ(message(""), "");
  unlink(path.c_str());
  EXPECT_EQ(error_file_message(path), "");
}

TEST(OutOfMemory, CountsAreReadFromEitherVersion) {
  std::string folder = (std::string)::testing::TempDir() + "tutti_oom_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::ofstream(folder + "/memory.events") << "low 0\nhigh 0\nmax 4\noom 2\noom_kill 3\n";
  EXPECT_EQ(out_of_memory_kills("0::/\n", folder), 3);
  EXPECT_EQ(out_of_memory_kills("4:memory:/x\n", folder), 0);
  unlink((folder + "/memory.events").c_str());
  rmdir(folder.c_str());
}

}  // namespace
}  // namespace tutti
