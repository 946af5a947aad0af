// What `tutti run` prints and writes: prefixes, filters, log files, readers that are slow or gone, full disks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/launch/running.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(Console, PrefixesWholeLinesAndKeepsTheStreamsApart) {
  const Ended ended = run({"run", "-n", "3", worker(), "print"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(lines_of(ended.out),
              ::testing::UnorderedElementsAre("[0] out 0", "[1] out 1", "[2] out 2", "[0] last line without an end",
                                              "[1] last line without an end", "[2] last line without an end"));
  EXPECT_THAT(ended.err, AllOf(HasSubstr("[0] err 0\n"), HasSubstr("[1] err 1\n"), HasSubstr("[2] err 2\n"),
                               Not(HasSubstr("out"))));
}

TEST(Console, TheRankTableComesBeforeTheOutputOfTheRanks) {
  Running job({"run", "-n", "6", "echo", "first"}, {}, {}, {"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh"});
  const Ended ended = job.wait();
  const std::vector<std::string> lines = lines_of(ended.out);
  const auto of_a_rank = [](const std::string& line) { return line.ends_with("] first"); };
  const auto first = std::find_if(lines.begin(), lines.end(), of_a_rank);
  EXPECT_GE(first - lines.begin(), 2) << "a line for the job, and one for ranks that have alike";
  EXPECT_TRUE(std::all_of(first, lines.end(), of_a_rank)) << ended.out;
  EXPECT_EQ(lines.end() - first, 6);
}

TEST(Console, NoPrefixPassesBytesThrough) {
  const Ended ended = run({"run", "--no-prefix", "-q", worker(), "print"});
  EXPECT_EQ(ended.out, "out 0\nlast line without an end");
  EXPECT_EQ(ended.err, "err 0\n");
}

TEST(Console, ColoursOnlyWhenAsked) {
  EXPECT_THAT(run({"run", "-q", worker(), "print"}).out, Not(HasSubstr("\033")));
  EXPECT_THAT(run({"run", "-q", worker(), "print"}, {{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", ""}}).out,
              HasSubstr("\033[31m[0]\033[0m out 0"));
  EXPECT_THAT(run({"run", "-q", worker(), "print"}, {{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", "1"}}).out,
              Not(HasSubstr("\033")));
}

TEST(Console, FiltersTheConsoleByRank) {
  EXPECT_EQ(run({"run", "-n", "3", "-q", "--only-ranks", "1", worker(), "print"}).out,
            "[1] out 1\n[1] last line without an end\n");
  const Ended ended = run({"run", "-n", "3", "-q", "--quiet-ranks", "0-1", worker(), "print"});
  EXPECT_EQ(ended.out, "[2] out 2\n[2] last line without an end\n");
}

TEST(Console, WritesAFilePerRankAndStream) {
  const Folder folder;
  ASSERT_EQ(run({"run", "-n", "2", "--job-id", "myjob", "--log-dir", folder.path(), "--quiet-ranks", "0,1", worker(),
                 "print"})
                .code,
            0);
  for (const std::string rank : {"0", "1"}) {
    const std::string base = folder.path() + "/myjob/attempt_0/rank_" + rank;
    EXPECT_EQ(read_file(base + "/stdout.log"), "out " + rank + "\nlast line without an end");
    EXPECT_EQ(read_file(base + "/stderr.log"), "err " + rank + "\n");
  }
}

TEST(Console, KeepsTheLogsOfAnEarlierJobOfTheName) {
  const Folder folder;
  const auto job = [&](std::vector<std::string> script) {
    script.insert(script.begin(),
                  {"run", "--job-id", "j", "--log-dir", folder.path(), "--max-restarts", "1", "sh", "-c"});
    return run(script);
  };
  EXPECT_EQ(job({"echo first; exit 3"}).code, 3);
  const Ended second = job({"echo second"});
  const std::string says = "the logs of an earlier job of this name are now in ";
  ASSERT_THAT(second.err, HasSubstr(says + folder.path() + "/j."));
  const std::string rest = second.err.substr(second.err.find(says) + says.size());
  const std::string earlier = rest.substr(0, rest.find('\n'));
  EXPECT_EQ(read_file(earlier + "/attempt_0/rank_0/stdout.log"), "first\n");
  EXPECT_THAT(read_file(earlier + "/attempt_1/report.json"), HasSubstr("exited with code 3"));
  EXPECT_EQ(read_file(folder.path() + "/j/attempt_0/rank_0/stdout.log"), "second\n");
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/j/attempt_1")) << "of the earlier job";
}

TEST(Console, TwoJobsOfOneNameDoNotShareTheirLogs) {
  const Folder folder;
  const std::string name = folder.path().substr(folder.path().rfind('/') + 1);  // no other test's job has it
  const auto start = [&](const std::string& logs) {
    return std::vector<std::string>{"run", "--job-id", name, "--log-dir", folder.path() + logs, worker(), "pause"};
  };
  Running first(start("/logs"));
  first.await_out("ready");
  const Ended second = run(start("/logs"));
  EXPECT_EQ(second.code, 2);
  EXPECT_THAT(second.err,
              AllOf(HasSubstr("another job of the name " + name + " is running and has its logs in " + folder.path() +
                              "/logs/" + name + " (pid " + std::to_string(first.agent()) + " on "),
                    HasSubstr("give this one another --job-id, or another --log-dir")));
  Running third(start("/others"));
  third.await_out("ready");
  const Ended status = run({"status", name});
  EXPECT_EQ(status.code, 2);
  const std::string agents[] = {std::to_string(first.agent()), std::to_string(third.agent())};
  EXPECT_THAT(status.err, HasSubstr("two jobs of the name " + name + " run on this host, with the agents " + agents[0] +
                                    " and " + agents[1]));
  EXPECT_THAT(run({"status", agents[1]}).out, HasSubstr("job " + name));
  for (Running* job : {&first, &third}) {
    job->send(SIGTERM);
    EXPECT_EQ(job->wait().code, 128 + SIGTERM);
  }
}

TEST(Console, ASlowReaderLosesNothing) {
  const Ended ended = run({"run", "-n", "2", "-q", "--no-prefix", worker(), "flood", "100000"});
  EXPECT_EQ(ended.out.size(), 2u * 100000 * 100);
}

TEST(Console, AStoppedReaderDelaysNoRank) {
  const Folder folder;
  Running running({"run", "-n", "2", "-q", "--timeout", "50s", worker(), "flood", "200000", folder.path()});
  running.stop_reading();
  EXPECT_EQ(running.wait().code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/flooded"));
}

TEST(Console, AReaderThatWentAwayEndsTheJobAsInAnyPipeline) {
  Running running({"run", "-n", "2", "yes"});
  running.await_out("[1] y\n");
  running.close_output();
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 128 + SIGPIPE);
  EXPECT_THAT(ended.err, HasSubstr("[tutti] the reader of our standard output is gone: ending the job"));
  EXPECT_TRUE(running.nobody_left()) << running.census();
}

TEST(Console, AReaderThatIsGoneDelaysNoRankThatWritesALog) {
  const Folder folder;
  Running running({"run", "-n", "2", "--log-dir", folder.path(), "--job-id", "j", worker(), "flood", "100000"});
  running.close_output();
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.err, HasSubstr("the job continues, its output is in " + folder.path()));
  EXPECT_EQ(read_file(folder.path() + "/j/attempt_0/rank_1/stdout.log").size(), 100000u * 100);
}

TEST(Console, AFullDiskIsReportedAndTheJobContinues) {
  const Folder folder;
  const Ended ended = run({"run", "-q", "--no-prefix", "sh", "-c",
                           std::string(TUTTI_TEST_COMMAND) + " run -n 2 " + worker() + " flood 1000 " + folder.path() +
                               " > /dev/full; echo code $?"});
  EXPECT_EQ(ended.out, "code 1\n");
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/flooded"));
  const std::string words = "cannot write to standard output: No space left on device; the job continues";
  EXPECT_NE(ended.err.find(words), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find(words), ended.err.rfind(words)) << "once";
}

// Every command answers through the same place; `run --help` is longer than a buffer, `status` fails by itself.
TEST(Console, OutputThatCannotBeWrittenIsNoSuccess) {
  for (const auto& [words, code] : {std::pair("--version", 1),
                                    {"--help", 1},
                                    {"run --help", 1},
                                    {"env", 1},
                                    {"plan --help", 1},
                                    {"data --help", 1},
                                    {"ckpt", 2}}) {
    const std::string command = std::string(TUTTI_TEST_COMMAND) + " " + words;
    const Ended full = run({"run", "-q", "--no-prefix", "sh", "-c", command + " > /dev/full; echo code $?"});
    EXPECT_EQ(full.out, "code " + std::to_string(code) + "\n") << words;
    EXPECT_THAT(full.err, HasSubstr("could not write all of the answer to standard output: No space left on device"))
        << words;
  }
  const Ended closed =
      run({"run", "-q", "--no-prefix", "sh", "-c", std::string(TUTTI_TEST_COMMAND) + " env >&-; echo code $? >&2"});
  EXPECT_THAT(closed.err, AllOf(HasSubstr("tutti env: "), HasSubstr("Bad file descriptor"), HasSubstr("code 1\n")));
}

// ulimit -f: the kernel's signal for it would end the agent, and with it the job.
TEST(Console, ALogAtTheFileSizeLimitIsReportedAndTheJobContinues) {
  const Folder folder;
  const Ended ended = run({"run", "-q", "--no-prefix", "sh", "-c",
                           "ulimit -f 8; " + std::string(TUTTI_TEST_COMMAND) + " run --log-dir " + folder.path() +
                               " --show none sh -c 'head -c 100000 /dev/zero; exit 3'; echo code $?"});
  EXPECT_EQ(ended.out, "code 3\n") << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("a log file in " + folder.path()), HasSubstr("ends here: File too large")));
}

}  // namespace
}  // namespace tutti::testing
