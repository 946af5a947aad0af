// Lines, the console that never blocks, and what of a rank goes there.
#include "tutti/launch/output/output.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "tutti/launch/output/console.h"
#include "tutti/launch/output/lines.h"

namespace tutti::launch {
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
              AllOf(Not(HasSubstr("lost")), HasSubstr("[tutti] 2 lines were dropped because this output was not read"),
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

// One that a rank of an earlier attempt has put there: opening it would wait for a reader.
TEST(WorkerOutput, APipeInThePlaceOfALogIsNotWaitedFor) {
  std::string folder = (std::string)::testing::TempDir() + "tutti_log_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  ASSERT_EQ(mkfifo((folder + "/stdout.log").c_str(), 0600), 0);
  Console output(1), errors(2);
  const auto worker = WorkerOutput::create(0, {.log_dir = folder}, {}, folder, output, errors);
  ASSERT_FALSE(worker.ok());
  EXPECT_THAT(to_string(worker.error()), HasSubstr("cannot write the log file " + folder + "/stdout.log"));
  unlink((folder + "/stdout.log").c_str());
  rmdir(folder.c_str());
}

// A log file on a full disk.
TEST(WorkerOutput, ALogThatEndsIsReportedOnStandardError) {
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

constexpr Streams kNone{}, kOutput{.output = true}, kErrors{.errors = true}, kBoth{.output = true, .errors = true};

TEST(Streams, OfEveryRank) {
  const std::pair<const char*, Streams> cases[] = {{"0", kNone}, {"1", kOutput}, {"2", kErrors}, {"3", kBoth}};
  for (const auto& [text, meant] : cases) {
    const auto streams = parse_streams(text, "--tee");
    ASSERT_TRUE(streams.ok()) << text;
    EXPECT_EQ(streams->of(0), meant);
    EXPECT_EQ(streams->of(17), meant);
    EXPECT_EQ(streams->any(), meant.any());
  }
}

TEST(Streams, ByLocalRank) {
  const auto streams = parse_streams("0:3,11:1,2:0,11:2", "--tee");
  ASSERT_TRUE(streams.ok());
  EXPECT_EQ(streams->of(0), kBoth);
  EXPECT_EQ(streams->of(1), kNone);
  EXPECT_EQ(streams->of(2), kNone);
  EXPECT_EQ(streams->of(11), kErrors) << "of two words about one rank the later counts";
  EXPECT_TRUE(streams->any());
  EXPECT_FALSE(parse_streams("0:0,1:0", "--tee")->any());
}

TEST(Streams, RefuseWhatTheyAreNot) {
  for (const char* wrong : {"", "4", "-1", "01", "both", "0:4", "0:", ":1", "a:1", "-1:1", "0:1,", "0:1;1:2", "0:1:2",
                            "0-3:1", "1,2", "9999999999999:1"}) {
    const auto streams = parse_streams(wrong, "--redirects");
    ASSERT_FALSE(streams.ok()) << wrong;
    EXPECT_EQ(streams.error().code, Code::kUsage);
    EXPECT_THAT(streams.error().detail, HasSubstr("--redirects needs 0 (none), 1 (stdout), 2 (stderr) or 3 (both)"));
    EXPECT_THAT(streams.error().detail, HasSubstr("not '" + std::string(wrong) + "'"));
  }
}

}  // namespace
}  // namespace tutti::launch
