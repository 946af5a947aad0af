// `tutti data` as a user types it.
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/launch/running.h"
#include "tutti/data/clicks/packed.h"
#include "tutti/data/clicks/trace_profile.h"

namespace tutti {
namespace {

using testing::Ended;
using testing::Folder;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using testing::run;

TEST(DataCommand, MakesClicksAndSaysWhatTheBestIs) {
  const Folder folder;
  const std::string out = folder.path() + "/clicks";
  const Ended ended = run({"data", "clicks", "--output", out, "--samples", "70000"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("70000 samples, 60000 of them for training, 5000 to test\n"));
  EXPECT_THAT(ended.out, MatchesRegex("(.|\n)*best AUC 0.7[0-9]+, without embeddings 0.6[0-9]+\n(.|\n)*"));
  EXPECT_EQ(read_packed_header(out).or_throw().samples, 70000u);
  const Ended again = run({"data", "clicks", "--output", out});
  EXPECT_EQ(again.code, 2);
  EXPECT_EQ(again.err,
            "tutti data clicks: " + out + " is there already\nhint: give another name, or remove it first\n");
}

TEST(DataCommand, PacksTheTextThatItMakes) {
  const Folder folder;
  const std::string text = folder.path() + "/train.txt", out = folder.path() + "/packed";
  ASSERT_EQ(
      run({"data", "clicks", "--output", text, "--format", "text", "--samples", "3000", "--most-rows", "20"}).code, 0);
  const Ended ended = run({"data", "criteo", text, "--output", out, "--days", "3", "--memory", "1G", "--threads", "2"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("3000 lines, 3000 samples, "));
  EXPECT_THAT(ended.out, HasSubstr("; 0 malformed lines skipped\nsamples of the days: 1000 1000 1000\n"));
  EXPECT_THAT(ended.out, HasSubstr(" MB/s)\n"));
  const PackedHeader header = read_packed_header(out).or_throw();
  EXPECT_EQ(header.days(), 3u);
  EXPECT_EQ(header.rows.at(0), 20u);
}

TEST(DataCommand, AMalformedLineIsAnErrorUnlessBadLinesMayBeSkipped) {
  const Folder folder;
  const std::string text = folder.path() + "/train.txt", out = folder.path() + "/packed";
  ASSERT_EQ(run({"data", "clicks", "--output", text, "--format", "text", "--samples", "10"}).code, 0);
  std::ofstream(text, std::ios::app) << "0\tnonsense\n";
  const Ended refused = run({"data", "criteo", text, "--output", out});
  EXPECT_EQ(refused.code, 1);
  EXPECT_EQ(refused.err, "tutti data criteo: Corrupt: " + text +
                             ": line 11: expected 40 columns separated by TAB, found 2\n"
                             "hint: mend the line, or let --skip-bad-lines N leave up to N of them out, which are then "
                             "counted\n");
  EXPECT_FALSE(std::filesystem::exists(out));
  const Ended ended = run({"data", "criteo", text, "--output", out, "--skip-bad-lines", "1"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err, "skipped: " + text + ": line 11: expected 40 columns separated by TAB, found 2\n");
  EXPECT_THAT(ended.out, HasSubstr("11 lines, 10 samples"));
  EXPECT_THAT(ended.out, HasSubstr("; 1 malformed lines skipped\n"));
}

TEST(DataCommand, MissingDaysAreNamed) {
  const Folder folder;
  const Ended ended = run({"data", "criteo", folder.path() + "/day_0", folder.path() + "/day_1", "-o", "packed"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("cannot open " + folder.path() + "/day_0: No such file or directory"));
  const Ended gap = run({"data", "criteo", "day_2", "day_0", "-o", "packed"});
  EXPECT_EQ(gap.code, 2);
  EXPECT_THAT(gap.err, HasSubstr("day_1 is missing between day_0 and day_2"));
}

TEST(DataCommand, ProfilesATrace) {
  const Folder folder;
  const std::string trace = folder.path() + "/trace", dist = folder.path() + "/dist", made = folder.path() + "/made";
  std::ofstream(trace) << "3, 7, 3, 1, 1, 7\n";
  const Ended ended = run({"data", "trace", "--trace-file", trace, "--dist-file", dist, "--synthetic-file", made});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "6 accesses to 3 rows, stack distances up to 3\n");
  EXPECT_EQ(read_trace_profile(dist).or_throw().lines, std::vector<std::int64_t>({3, 7, 1}));
  EXPECT_EQ(read_trace(made, false).or_throw().size(), 6u);
  std::ofstream(trace) << "3, seven\n";
  const Ended refused = run({"data", "trace", "--trace-file", trace, "--dist-file", dist});
  EXPECT_EQ(refused.code, 1);
  EXPECT_THAT(refused.err, HasSubstr(trace + ": access 2 (byte 3) is 'seven', which is no line of a table"));
}

TEST(DataCommand, MistakesAreReportedWithTheNearestName) {
  const auto refusal = [](std::vector<std::string> arguments) {
    const Ended ended = run(std::move(arguments));
    EXPECT_EQ(ended.code, 2);
    return ended.err;
  };
  EXPECT_EQ(refusal({"data", "critoe"}), "tutti data: unknown command critoe\nhint: did you mean criteo?\n");
  EXPECT_THAT(refusal({"data", "criteo", "x", "--outputt", "y"}), HasSubstr("did you mean --output?"));
  EXPECT_THAT(refusal({"data", "criteo"}), HasSubstr("no input given"));
  EXPECT_THAT(refusal({"data", "criteo", "x"}), HasSubstr("--output DIR is missing"));
  EXPECT_THAT(refusal({"data", "criteo", "x", "-o", "y", "--randomize", "totl"}), HasSubstr("did you mean total?"));
  EXPECT_THAT(refusal({"data", "criteo", "x", "-o", "y", "--memory", "much"}),
              HasSubstr("--memory needs a size such as"));
  EXPECT_THAT(refusal({"data", "criteo", "x", "-o", "y", "--days", "0"}), HasSubstr("--days needs a number from 1"));
  EXPECT_THAT(refusal({"data", "clicks"}), HasSubstr("--output PATH is missing"));
  EXPECT_THAT(refusal({"data", "clicks", "-o", "y", "--rows", "3-x"}), HasSubstr("--rows needs a number from 1"));
  EXPECT_THAT(refusal({"data", "clicks", "-o", "y", "--rows", "3-4", "--most-rows", "5"}),
              HasSubstr("--rows gives others"));
  EXPECT_THAT(refusal({"data", "clicks", "-o", "y", "--rows", "3-4", "--pairs", "2"}),
              HasSubstr("2 pairs among 2 tables: at most 1"));
  EXPECT_THAT(refusal({"data", "trace"}), HasSubstr("--trace-file is missing"));
  EXPECT_THAT(refusal({"data", "trace", "--trace-file", "x"}), HasSubstr("nothing to make"));
}

TEST(DataCommand, HelpNamesGroupsAndExamples) {
  EXPECT_THAT(run({"data"}).out, HasSubstr("Commands:\n  criteo"));
  for (const char* command : {"criteo", "clicks", "trace"}) {
    const Ended ended = run({"data", command, "--help"});
    EXPECT_EQ(ended.code, 0);
    EXPECT_THAT(ended.out, HasSubstr("Result:"));
    EXPECT_THAT(ended.out, HasSubstr("Examples:\n"));
    EXPECT_THAT(ended.out, HasSubstr("Exit codes:"));
  }
}

// A full disk, as a limit on the size of files makes it: the write fails, nothing is left.
TEST(DataCommand, WhereNothingCanBeWrittenNothingIsLeft) {
  const Folder folder;
  const std::string out = folder.path() + "/clicks";
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{1 << 20, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const Ended ended = run({"data", "clicks", "--output", out, "--samples", "100000"});
  std::signal(SIGXFSZ, handler);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("cannot write " + out + ".unfinished/clicks.bin: File too large"));
  EXPECT_FALSE(std::filesystem::exists(out));
  EXPECT_FALSE(std::filesystem::exists(out + ".unfinished"));
}

}  // namespace
}  // namespace tutti
