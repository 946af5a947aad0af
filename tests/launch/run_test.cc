// `tutti run` as a user meets it: what workers see, what the console shows, what files hold, what wrong usage is told.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <tuple>

#include "tests/harness/reserved_port.h"
#include "tests/launch/running.h"
#include "tutti/transport/socket.h"
#include "tutti/version.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

void write_script(const std::string& path, const std::string& text, mode_t mode = 0755) {
  std::ofstream(path) << text;
  chmod(path.c_str(), mode);
}

TEST(Run, PrefixesWholeLinesAndKeepsTheStreamsApart) {
  const Ended ended = run({"run", "-n", "3", worker(), "print"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(lines_of(ended.out),
              ::testing::UnorderedElementsAre("[0] out 0", "[1] out 1", "[2] out 2", "[0] last line without an end",
                                              "[1] last line without an end", "[2] last line without an end"));
  EXPECT_THAT(ended.err, AllOf(HasSubstr("[0] err 0\n"), HasSubstr("[1] err 1\n"), HasSubstr("[2] err 2\n"),
                               Not(HasSubstr("out"))));
}

TEST(Run, WhoGetsWhatIsSaidBeforeTheRanksSayAnything) {
  Running job({"run", "-n", "6", "echo", "first"}, {}, {}, {"/bin/sh", "-c", "exec \"$@\" 2>&1", "sh"});
  const Ended ended = job.wait();
  const std::vector<std::string> lines = lines_of(ended.out);
  const auto of_a_rank = [](const std::string& line) { return line.ends_with("] first"); };
  const auto first = std::find_if(lines.begin(), lines.end(), of_a_rank);
  EXPECT_GE(first - lines.begin(), 2) << "a line for the job, and one for ranks that have alike";
  EXPECT_TRUE(std::all_of(first, lines.end(), of_a_rank)) << ended.out;
  EXPECT_EQ(lines.end() - first, 6);
}

TEST(Run, NoPrefixPassesBytesThrough) {
  const Ended ended = run({"run", "--no-prefix", "-q", worker(), "print"});
  EXPECT_EQ(ended.out, "out 0\nlast line without an end");
  EXPECT_EQ(ended.err, "err 0\n");
}

TEST(Run, ColoursOnlyWhenAsked) {
  EXPECT_THAT(run({"run", "-q", worker(), "print"}).out, Not(HasSubstr("\033")));
  EXPECT_THAT(run({"run", "-q", worker(), "print"}, {{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", ""}}).out,
              HasSubstr("\033[31m[0]\033[0m out 0"));
  EXPECT_THAT(run({"run", "-q", worker(), "print"}, {{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", "1"}}).out,
              Not(HasSubstr("\033")));
}

TEST(Run, FiltersTheConsoleByRank) {
  EXPECT_EQ(run({"run", "-n", "3", "-q", "--only-ranks", "1", worker(), "print"}).out,
            "[1] out 1\n[1] last line without an end\n");
  const Ended ended = run({"run", "-n", "3", "-q", "--quiet-ranks", "0-1", worker(), "print"});
  EXPECT_EQ(ended.out, "[2] out 2\n[2] last line without an end\n");
}

TEST(Run, WritesAFilePerRankAndStream) {
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

TEST(Run, KeepsTheLogsOfAnEarlierJobOfTheName) {
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

TEST(Run, TwoJobsOfOneNameDoNotShareTheirLogs) {
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

TEST(Run, GivesWorkersTorchrunsVariables) {
  const Ended ended = run({"run",
                           "-n",
                           "2",
                           "-q",
                           "--only-ranks",
                           "1",
                           "--job-id",
                           "j7",
                           worker(),
                           "env",
                           "RANK",
                           "LOCAL_RANK",
                           "WORLD_SIZE",
                           "LOCAL_WORLD_SIZE",
                           "GROUP_RANK",
                           "GROUP_WORLD_SIZE",
                           "ROLE_RANK",
                           "ROLE_WORLD_SIZE",
                           "ROLE_NAME",
                           "MASTER_ADDR",
                           "TORCHELASTIC_RESTART_COUNT",
                           "TORCHELASTIC_MAX_RESTARTS",
                           "TORCHELASTIC_RUN_ID",
                           "TORCHELASTIC_USE_AGENT_STORE",
                           "TUTTI_JOB",
                           "TUTTI_GENERATION"});
  EXPECT_EQ(
      ended.out,
      "[1] RANK=1\n[1] LOCAL_RANK=1\n[1] WORLD_SIZE=2\n[1] LOCAL_WORLD_SIZE=2\n[1] GROUP_RANK=0\n[1] "
      "GROUP_WORLD_SIZE=1\n[1] ROLE_RANK=1\n"
      "[1] ROLE_WORLD_SIZE=2\n[1] ROLE_NAME=default\n[1] MASTER_ADDR=127.0.0.1\n[1] TORCHELASTIC_RESTART_COUNT=0\n"
      "[1] TORCHELASTIC_MAX_RESTARTS=0\n[1] TORCHELASTIC_RUN_ID=j7\n[1] TORCHELASTIC_USE_AGENT_STORE=False\n[1] "
      "TUTTI_JOB=j7\n"
      "[1] TUTTI_GENERATION=0\n");
}

TEST(Run, MasterPortIsFreeForTheProgram) {
  const Ended ended = run({"run", "-q", "python3", "-c",
                           "import os, socket; s = socket.socket(); s.bind((os.environ['MASTER_ADDR'], "
                           "int(os.environ['MASTER_PORT']))); print('bound')"});
  EXPECT_THAT(ended.out, HasSubstr("bound"));
}

TEST(Run, RemovesWhatOtherLaunchersLeft) {
  const Ended ended = run({"run", worker(), "env", "RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK",
                           "PMIX_RANK", "SLURM_PROCID", "TUTTI_INIT"},
                          {{"RANK", "7"},
                           {"PMI_RANK", "5"},
                           {"OMPI_COMM_WORLD_RANK", "4"},
                           {"MV2_COMM_WORLD_RANK", "3"},
                           {"PMIX_RANK", "2"},
                           {"SLURM_PROCID", "9"},
                           {"TUTTI_INIT", "tcp://elsewhere:1"},
                           {"WORLD_SIZE", "64"},
                           {"MASTER_ADDR", "10.9.9.9"}});
  EXPECT_EQ(ended.out,
            "[0] RANK=0\n[0] PMI_RANK=(unset)\n[0] OMPI_COMM_WORLD_RANK=(unset)\n[0] MV2_COMM_WORLD_RANK=(unset)\n[0] "
            "PMIX_RANK=(unset)\n"
            "[0] SLURM_PROCID=(unset)\n[0] TUTTI_INIT=(unset)\n");
  EXPECT_THAT(ended.err, HasSubstr("variables of another launcher"));
  EXPECT_THAT(run({"run", "true"}, {{"OMPI_COMM_WORLD_RANK", "4"}}).err,
              HasSubstr("removed 1 variable of another launcher (OMPI_COMM_WORLD_RANK)"));
}

TEST(Run, TunesWhatTheUserHasNot) {
  const Ended tuned =
      run({"run", worker(), "env", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"}, {{"OMP_NUM_THREADS", "3"}});
  EXPECT_EQ(tuned.out, "[0] OMP_NUM_THREADS=3\n[0] OPENBLAS_NUM_THREADS=(unset)\n") << "OpenBLAS follows OpenMP";
  EXPECT_THAT(tuned.err, Not(HasSubstr("_NUM_THREADS=")));
  EXPECT_EQ(run({"run", "--no-tune", worker(), "env", "OMP_NUM_THREADS"}).out, "[0] OMP_NUM_THREADS=(unset)\n");
  const Ended empty = run({"run", "-q", "--no-tune", "--no-prefix", "sh", "-c",
                           "OMP_NUM_THREADS= " + std::string(TUTTI_TEST_COMMAND) + " run -q " + worker() +
                               " env OMP_NUM_THREADS OPENBLAS_NUM_THREADS"});
  EXPECT_THAT(empty.out, MatchesRegex("\\[0\\] OMP_NUM_THREADS=[0-9]+\n\\[0\\] OPENBLAS_NUM_THREADS=[0-9]+\n"));
}

TEST(Run, AVariableThatCostsSpeedGetsAWarningInAnyCase) {
  const std::map<std::string, std::string> variables = {{"OMP_NUM_THREADS", "100000"}};
  EXPECT_THAT(run({"run", "-q", worker(), "print"}, variables).err,
              AllOf(HasSubstr("OMP_NUM_THREADS is 100000, more than the "),
                    HasSubstr(" of a rank; tutti run chooses the value of a variable that is not set\n")));
  EXPECT_THAT(run({"run", "-q", "--no-tune", worker(), "print"}, variables).err, HasSubstr("more than the "));
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their malloc has neither thresholds nor figures
// 200 MB, in blocks that malloc maps unless it was told otherwise.
TEST(Run, AProgramGivesFreedMemoryBackUnlessAskedToKeepIt) {
  EXPECT_EQ(run({"run", "-q", worker(), "free-memory"}).out, "[0] given back\n");
  EXPECT_EQ(run({"run", "-q", "--keep-memory", worker(), "free-memory"}).out, "[0] kept\n");
  EXPECT_EQ(run({"run", "-q", "--keep-memory", worker(), "free-memory"}, {{"MALLOC_MMAP_THRESHOLD_", "131072"}}).out,
            "[0] given back\n")
      << "the user's variables win";
}
#endif

// Once for all ranks, and before one of them loads its libraries.
TEST(Run, AVariableThatMakesNoSenseIsReportedBeforeARankStarts) {
  for (const auto& [name, value, words] :
       {std::tuple("TUTTI_STREAMS", "65", "TUTTI_STREAMS is \"65\", expected a number from 1 to 64"),
        {"TUTTI_NETWORK", "a,b", "TUTTI_NETWORK"},
        {"TUTTI_FLIGHT_SIZE", "99999999999", "TUTTI_FLIGHT_SIZE is \"99999999999\", expected a number of operations"},
        {"TUTTI_HEAP_LIMIT", "much", "TUTTI_HEAP_LIMIT is \"much\""},
        {"TUTTI_TIMEOUT", "soon", "TUTTI_TIMEOUT"},
        {"TUTTI_ALGORITHM", "rign", "did you mean ring?"},
        {"TUTTI_MIXED_BUILDS", "maybe", "TUTTI_MIXED_BUILDS is \"maybe\", expected 1 or 0"},
        {"TUTTI_DEVICE", "foo", "TUTTI_DEVICE is \"foo\", expected cpu, cuda or cuda:N"},
        {"TUTTI_DEVICE", "cuda:-1", "TUTTI_DEVICE is \"cuda:-1\""},
        {"TUTTI_IFACE", "no-such-network", "(from TUTTI_IFACE)"},
        {"OMP_NUM_THREADS", "0", "OMP_NUM_THREADS is \"0\", expected a number of threads from 1 up"},
        {"OMP_NUM_THREADS", "4,many", "OMP_NUM_THREADS is \"4,many\""}}) {
    const Ended ended = run({"run", "-n", "3", worker(), "print"}, {{name, value}});
    EXPECT_EQ(ended.code, 2) << name << "=" << value;
    EXPECT_EQ(ended.out, "") << name << "=" << value;
    EXPECT_THAT(ended.err, AllOf(StartsWith("tutti run: "), HasSubstr(words), Not(HasSubstr("rank 0"))));
  }
  EXPECT_EQ(run({"run", "-q", worker(), "env", "OMP_NUM_THREADS"}, {{"OMP_NUM_THREADS", "2, 1"}}).out,
            "[0] OMP_NUM_THREADS=2, 1\n");
}

TEST(Run, HelpIgnoresVariables) {
  for (const char* name : {"TUTTI_TIMEOUT", "OMP_NUM_THREADS", "TUTTI_LOG"}) {
    const Ended help = run({"run", "--help"}, {{name, "nonsense"}});
    EXPECT_EQ(help.code, 0) << name << ": " << help.err;
  }
}

TEST(Run, DoctorReportsVariablesThatMakeNoSense) {
  for (const char* name : {"TUTTI_TIMEOUT", "OMP_NUM_THREADS"}) {
    const Ended doctor = run({"doctor"}, {{name, "nonsense"}});
    EXPECT_EQ(doctor.code, 1) << doctor.out;
    EXPECT_THAT(doctor.out, ::testing::ContainsRegex(std::string("FAIL +variables +.*") + name));
  }
  EXPECT_THAT(run({"doctor"}).out, Not(HasSubstr("variables")));
}

TEST(Run, EverythingAfterTheProgramIsTheProgrammes) {
  const std::string expected = "argument --help\nargument -n\nargument 3\nargument --\nargument -h\n";
  EXPECT_EQ(run({"run", "-q", "--no-prefix", worker(), "arguments", "--help", "-n", "3", "--", "-h"}).out, expected);
  EXPECT_EQ(run({"run", "-q", "--no-prefix", "--", worker(), "arguments", "--help", "-n", "3", "--", "-h"}).out,
            expected);
}

TEST(Run, FindsProgramsThroughPath) {
  const Folder folder;
  write_script(folder.path() + "/my-script", "#!/bin/sh\necho from the script $1\n");
  EXPECT_EQ(run({"run", "-q", "my-script", "x"}, {{"PATH", folder.path() + ":/usr/bin:/bin"}}).out,
            "[0] from the script x\n");
}

TEST(Run, RankZeroReadsStandardInput) {
  const Ended ended = run({"run", "-n", "2", "-q", worker(), "stdin"}, {}, "hello\n");
  EXPECT_THAT(ended.out, AllOf(HasSubstr("[0] read hello\n"), HasSubstr("[1] read end of file\n")));
}

TEST(Run, AnEmptyValueIsNoDefault) {
  for (const char* option : {"-n", "--job-id", "--log-dir", "--master-addr"}) {
    const Ended ended = run({"run", option, "", worker(), "print"});
    EXPECT_EQ(ended.code, 2) << option;
    EXPECT_THAT(ended.err, HasSubstr("an empty value (is a variable that it comes from not set?)")) << option;
  }
  // What stands behind an empty value is not it.
  const Ended joined = run({"run", "-q", "--log-dir=", worker(), "print"});
  EXPECT_EQ(joined.code, 2);
  EXPECT_THAT(joined.err, HasSubstr("tutti run: --log-dir: an empty value"));
  const Ended of_program = run({"run", "-q", worker(), "arguments", "--log-dir="});
  EXPECT_EQ(of_program.code, 0);
  EXPECT_THAT(of_program.out, HasSubstr("argument --log-dir="));
  const Ended flag = run({"run", worker(), "print"}, {{"PET_STANDALONE", "maybe"}});
  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.err, HasSubstr("the environment variable PET_STANDALONE is \"maybe\", expected 1 or 0"));
  EXPECT_EQ(run({"run", "-q", worker(), "print"}, {{"PET_STANDALONE", "1"}}).code, 0);
}

TEST(Run, TheRankThatReadsStandardInputIsChosen) {
  const Ended second = run({"run", "-n", "2", "-q", "--stdin", "1", worker(), "stdin"}, {}, "hello\n");
  EXPECT_THAT(second.out, AllOf(HasSubstr("[0] read end of file\n"), HasSubstr("[1] read hello\n")));
  const Ended none = run({"run", "-n", "2", "-q", "--stdin", "none", worker(), "stdin"}, {}, "hello\n");
  EXPECT_THAT(none.out, AllOf(HasSubstr("[0] read end of file\n"), HasSubstr("[1] read end of file\n")));
  const Ended all = run({"run", "--stdin", "all", worker(), "stdin"});
  EXPECT_EQ(all.code, 2);
  EXPECT_THAT(all.err, AllOf(HasSubstr("--stdin needs the number of a rank, or none, not 'all'"),
                             HasSubstr("one rank reads it, and can broadcast it to the others")));
  const Ended missing = run({"run", "-n", "2", "--stdin", "2", worker(), "stdin"});
  EXPECT_THAT(missing.err, HasSubstr("--stdin names rank 2, but the job has 2 ranks"));
  const Ended remote = run({"run", "--hosts", "localhost", "--stdin", "0", worker(), "stdin"});
  EXPECT_EQ(remote.code, 2);
  EXPECT_THAT(remote.err, HasSubstr("--stdin 0: over ssh all ranks read /dev/null"));
}

// `tutti run ... &`: what is typed belongs to the shell. In the foreground a rank reads the terminal.
TEST(Run, ARankDoesNotReadTheTerminalOfAnother) {
  for (const bool background : {true, false}) {
    const std::string command = std::string(TUTTI_TEST_COMMAND) + " run -q " + worker() + " stdin";
    const std::string script = background ? "set -m; " + command + " & wait" : command;
    int terminal = -1;
    const pid_t shell = forkpty(&terminal, nullptr, nullptr, nullptr);
    ASSERT_GE(shell, 0);
    if (shell == 0) {
      execl("/bin/bash", "bash", "-c", script.c_str(), nullptr);
      _exit(126);
    }
    ASSERT_EQ(write(terminal, "typed\n", 6), 6);
    std::string seen;
    char bite[4096];
    for (ssize_t count; (count = read(terminal, bite, sizeof bite)) > 0;) seen.append(bite, std::size_t(count));
    waitpid(shell, nullptr, 0);
    close(terminal);
    EXPECT_THAT(seen, HasSubstr(background ? "read end of file" : "read typed"));
  }
}

TEST(Run, RanksMayEndAtDifferentTimes) {
  const Folder folder;
  EXPECT_EQ(run({"run", "-n", "2", worker(), "early", folder.path()}).code, 0);
}

TEST(Run, ASlowReaderLosesNothing) {
  const Ended ended = run({"run", "-n", "2", "-q", "--no-prefix", worker(), "flood", "100000"});
  EXPECT_EQ(ended.out.size(), 2u * 100000 * 100);
}

TEST(Run, AStoppedReaderHoldsNobodyUp) {
  const Folder folder;
  Running running({"run", "-n", "2", "-q", "--timeout", "50s", worker(), "flood", "200000", folder.path()});
  running.stop_reading();
  EXPECT_EQ(running.wait().code, 0);
  EXPECT_TRUE(std::filesystem::exists(folder.path() + "/flooded"));
}

TEST(Run, AReaderThatWentAwayEndsTheJobAsInAnyPipeline) {
  Running running({"run", "-n", "2", "yes"});
  running.await_out("[1] y\n");
  running.close_output();
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 128 + SIGPIPE);
  EXPECT_THAT(ended.err, HasSubstr("[tutti] the reader of our standard output is gone: ending the job"));
  EXPECT_TRUE(running.nobody_left()) << running.census();
}

TEST(Run, AReaderThatWentAwayHoldsNobodyUpWhoKeepsALog) {
  const Folder folder;
  Running running({"run", "-n", "2", "--log-dir", folder.path(), "--job-id", "j", worker(), "flood", "100000"});
  running.close_output();
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.err, HasSubstr("the job continues, its output is in " + folder.path()));
  EXPECT_EQ(read_file(folder.path() + "/j/attempt_0/rank_1/stdout.log").size(), 100000u * 100);
}

TEST(Run, AFullDiskIsToldAndTheJobGoesOn) {
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
TEST(Run, AnAnswerThatNobodyTakesIsNoSuccess) {
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
TEST(Run, ALogAtTheFileSizeLimitIsToldAndTheJobGoesOn) {
  const Folder folder;
  const Ended ended = run({"run", "-q", "--no-prefix", "sh", "-c",
                           "ulimit -f 8; " + std::string(TUTTI_TEST_COMMAND) + " run --log-dir " + folder.path() +
                               " --show none sh -c 'head -c 100000 /dev/zero; exit 3'; echo code $?"});
  EXPECT_EQ(ended.out, "code 3\n") << ended.err;
  EXPECT_THAT(ended.err, AllOf(HasSubstr("a log file in " + folder.path()), HasSubstr("ends here: File too large")));
}

TEST(Run, OptionsOfTorchrunThatMeanNothingHereAreRefusedAndItsVariablesTold) {
  EXPECT_THAT(run({"run", "--duplicate-stdout-filters", "x", worker(), "print"}).err,
              HasSubstr("torchrun's --duplicate-stdout-filters has no meaning for tutti run"));
  const Ended variable = run({"run", worker(), "env", "RANK"}, {{"PET_RUN_PATH", "1"}});
  EXPECT_EQ(variable.code, 0);
  EXPECT_THAT(variable.err, HasSubstr("PET_RUN_PATH has no meaning for tutti run: it starts programs"));
}

#if !defined(__SANITIZE_THREAD__)  // which has files of its own
// Memory that processes share is a file for it as well.
TEST(Run, WithoutRoomForAnyFileASentenceSaysWhy) {
  const auto limited = [](const std::string& limit, const std::string& program) {
    return run({"run", "-q", "--no-prefix", "sh", "-c",
                "ulimit -f " + limit + "; " + TUTTI_TEST_COMMAND + " run -q -n 2 " + program + "; echo code $?"});
  };
  const Ended none = limited("0", worker() + " env RANK");
  EXPECT_EQ(none.out, "code 1\n");
  EXPECT_THAT(none.err, AllOf(HasSubstr("File too large"), HasSubstr("ulimit -f"), Not(HasSubstr("SIGXFSZ"))));
  const Ended little = limited("1", std::string(TUTTI_TEST_WORLD) + " once");
  EXPECT_THAT(little.err, AllOf(HasSubstr("Limit: rank 0: cannot grow the shared heap by "),
                                HasSubstr("File too large"), HasSubstr("limit of file sizes: ulimit -f unlimited")));
}
#endif

std::string python(const std::string& before) {
  return "import os, signal, sys; " + before + "; os.execv(sys.argv[1], sys.argv[1:])";
}

// Started by something that closed descriptors, ignored the end of children, or left few descriptors.
TEST(Run, StrangeBeginnings) {
  const Folder folder;
  const std::string logs = folder.path();
  for (const std::string before : {"os.closerange(0, 3)", "signal.signal(signal.SIGCHLD, signal.SIG_IGN)"}) {
    const Ended ended = run({"run", "-q", "--no-prefix", "python3", "-c", python(before), TUTTI_TEST_COMMAND, "run",
                             "-n", "2", "--job-id", "j", "--log-dir", logs, worker(), "print"});
    EXPECT_EQ(ended.code, 0) << before << ended.err;
    EXPECT_EQ(read_file(logs + "/j/attempt_0/rank_1/stdout.log"), "out 1\nlast line without an end") << before;
    std::filesystem::remove_all(logs + "/j");
  }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they need stack and descriptors themselves
  const Ended small =
      run({"run", "-q", "--no-prefix", "sh", "-c",
           "ulimit -s 64; exec " + std::string(TUTTI_TEST_COMMAND) + " run -n 2 " + TUTTI_TEST_WORLD + " once"});
  EXPECT_EQ(small.code, 0) << small.err;
  for (const std::string limit : {"8", "16", "38"}) {
    const Ended none = run(
        {"run", "-q", "--no-prefix", "sh", "-c",
         "ulimit -n 38; ulimit -n " + limit + "; exec " + TUTTI_TEST_COMMAND + " run -n 20 " + worker() + " env RANK"});
    EXPECT_EQ(none.code, 1) << none.err;
    EXPECT_THAT(none.err, AllOf(HasSubstr("Limit: a process may have " + limit +
                                          " open files here, and to start 20 ranks takes at least 115"),
                                HasSubstr("ulimit -n"), Not(HasSubstr("Usage"))));
  }
#endif
  const Ended few = run({"run", "-q", "--no-prefix", "python3", "-c",
                         python("import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (40, "
                                "resource.getrlimit(resource.RLIMIT_NOFILE)[1]))"),
                         TUTTI_TEST_COMMAND, "run", "-n", "20", worker(), "env", "RANK"});
  EXPECT_EQ(few.code, 0) << few.err;
  EXPECT_THAT(few.out, HasSubstr("[19] RANK=19"));
}

TEST(Run, UserSignalsReachTheRanksAlone) {
  Running running({"run", "-n", "2", "python3", "-c",
                   "import signal, subprocess, sys\nsignal.signal(signal.SIGUSR1, lambda *a: (print('got it', "
                   "helper.poll()), helper.kill(), sys.exit(0)))\n"
                   "helper = subprocess.Popen(['sleep', '600'])\nprint('ready')\nwhile True: signal.pause()"});
  running.await_out("ready", 2);
  running.send(SIGUSR1);
  const Ended ended = running.wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("[0] got it None"), HasSubstr("[1] got it None")));
}

TEST(Run, HelpAndVersion) {
  EXPECT_EQ(run({"--help"}).code, 0);
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  EXPECT_EQ(run({"help", "run"}).out, run({"run", "--help"}).out);
  EXPECT_EQ(run({"help", "rn"}).code, 2);
  EXPECT_THAT(run({"run", "--help"}).out,
              AllOf(HasSubstr("--master-addr"), HasSubstr("Examples"), HasSubstr("Exit codes")));
  EXPECT_THAT(run({"--version"}).out, MatchesRegex("tutti [0-9]+\\.[0-9]+\\.[0-9]+\n"));
}

struct Wrong {
  std::vector<std::string> arguments;
  std::string sentence;
  std::string hint;
};

TEST(Run, WrongUsageIsToldInASentence) {
  const Folder folder;
  const std::string here = folder.path();
  write_script(here + "/plain", "echo no interpreter line\n");
  write_script(here + "/plain.py", "print('no interpreter line')\n");
  write_script(here + "/badscript", "#!/no/such/interpreter -x\n");
  write_script(here + "/dos", "#!/bin/sh\r\necho\r\n");
  write_script(here + "/notexec.py", "print()\n", 0644);
  write_script(here + "/empty", "");
  ASSERT_EQ(::mkfifo((here + "/pipe").c_str(), 0600), 0);
  for (const Wrong& wrong : std::vector<Wrong>{
           {{"rnu"}, "unknown command rnu", "did you mean run?"},
           {{"--halp"}, "unknown option --halp", "did you mean --help?"},
           {{"run", "--nod-rank", "1", "x"}, "unknown option --nod-rank", "did you mean --node-rank?"},
           {{"run", "-n", "2", "--grce=1s", "x"}, "unknown option --grce", "did you mean --grace?"},
           {{"run", "--restarts", "2", "x"}, "unknown option --restarts", "did you mean --max-restarts?"},
           {{"run", "--restart", "2", "x"},
            "unknown option --restart",
            "did you mean --max-restarts or --restart-pause?"},
           {{"run", "-n", "0", "sh"}, "-n needs a number of ranks, 1 or more, not '0'", "-n 4"},
           {{"run", "-n", "-4", "sh"}, "not '-4'", "-n 4"},
           {{"run", "-n", "two", "sh"}, "not 'two'", "-n 4"},
           {{"run", "-n", "4x", "sh"}, "not '4x'", "-n 4"},
           {{"run", "-n", "1000000", "sh"}, "more than the 4096", ""},
           {{"run", "-n", "2,,3", "sh"}, "not '' (in '2,,3')", ""},
           {{"run", "-n"}, "-n", "needs a value"},
           {{"-n", "4", "sh"}, "unknown option -n", "to start a program: tutti run -n 4 ./program"},
           {{"run", "-np", "2", "sh"}, "unknown option -np", "here that is -n: tutti run -n 2 ..."},
           {{"run", "-n", "2", "--num_gpus=4", "sh"}, "unknown option --num_gpus", "tutti run -n 4 ..."},
           {{"run", "-np", "-host", "a"}, "unknown option -np", "tutti run -n N ..."},
           {{"run", "-host", "a,b", "sh"}, "unknown option -host", "here that is --hosts: tutti run --hosts a:8,b:2"},
           {{"run", "-hostfile", "h", "sh"}, "unknown option -hostfile", "here that is --hostfile FILE"},
           {{"run", "-n", "2", "--bind-to", "core", "sh"}, "unknown option --bind-to", "--bind core, socket or numa"},
           {{"run", "--allow-run-as-root", "sh"}, "unknown option --allow-run-as-root", "drop it"},
           {{"run", "--", "-np", "2", "sh"}, "'-np' stands where the program should", "come before the --"},
           {{"run", "4", "sh"}, "'4' stands where the program should", "tutti run -n 4 sh ..."},
           {{"run", "--rank", "3", "sh"}, "unknown option --rank", "--node-rank"},
           {{"run", "-x", "A=1", "sh"}, "-x is for hosts that are started over ssh", "the variables of this shell"},
           {{"run", "-zz", "sh"}, "unknown option -zz", "tutti run --help lists the options"},
           {{"run", "-n", "2", "--only-ranks", "1,9", "sh"}, "--only-ranks names rank 9, but the job has 2 ranks", ""},
           {{"run", "--master-port", "29876", "--store-port", "29876", "sh"}, "are both 29876", "another one"},
           {{"run", "-n", "2"}, "no program given. Usage: tutti run -n N", "tutti run --help"},
           {{"run", "-n", "2", "--"}, "no program given. Usage: tutti run -n N", "tutti run --help"},
           {{"run", "--job-id", "../up", "sh"}, "--job-id '../up' is not a valid job name", "letters"},
           {{"run", "--grace", "soon", "sh"}, "--grace needs a duration such as 30s or 5min, not 'soon'", ""},
           {{"run", "--report", here, "sh"}, "--report " + here + " is a folder", "a file's name"},
           {{"run", "--report", here + "/pipe", "sh"}, "is a pipe, which may have no reader", "a file's name"},
           {{"run", "--node-timeout", "0", "sh"},
            "a node that is silent for 0 s may still be alive",
            "at least 500 ms"},
           {{"run", "--rdzv-conf", "keep_alive_interval=1ms", "sh"}, "silent for 3 ms may still be alive", ""},
           {{"run", "--rdzv-conf", "join_timeout=1e300", "sh"}, "join_timeout needs a time, not '1e300'", ""},
           {{"run", "--connect-timeout", "0", "sh"}, "--connect-timeout 0 leaves the nodes no time to meet", "5min"},
           {{"run", "--report", here + "/no/r.json", "sh"}, "there is no folder " + here + "/no here", "make it"},
           {{"run", "--only-ranks", "a", "sh"}, "--only-ranks needs ranks", ""},
           {{"run", "--master-port", "70000", "sh"}, "--master-port needs a number from 1 to 65535, not '70000'", ""},
           {{"run", "no-such-program-anywhere"}, "no program 'no-such-program-anywhere' in PATH", "give its path"},
           {{"run", here + "/missing"}, "does not exist", ""},
           {{"run", here + "/badscrip"}, "does not exist", "did you mean " + here + "/badscript?"},
           {{"run", here}, "is a folder, not a program", ""},
           {{"run", "--no-python", here + "/notexec.py"}, "is not executable", "python3"},
           {{"run", here + "/plain"}, "neither a program of this machine nor a script", "sh " + here + "/plain"},
           {{"run", "--no-python", here + "/plain.py"},
            "neither a program of this machine nor a script",
            "python3 " + here + "/plain.py"},
           {{"run", here + "/badscript"}, "the interpreter '/no/such/interpreter' of the script", ""},
           {{"run", here + "/dos"}, "DOS line ends", "sed"},
           {{"run", here + "/empty"}, "is an empty file", ""},
           {{"run", ""}, "the name of the program is empty", ""},
       }) {
    const Ended ended = run(wrong.arguments);
    EXPECT_EQ(ended.code, 2) << ended.err;
    EXPECT_THAT(ended.err, AllOf(HasSubstr(wrong.sentence), HasSubstr(wrong.hint)));
    EXPECT_EQ(ended.out, "");
  }
}

TEST(Run, TheVersionIsTold) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--version"}, {"run", "--version"}, {"data", "--version"}}) {
    const Ended ended = run(words);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.out, "tutti " TUTTI_VERSION "\n");
  }
}

// Each rank would say it.
TEST(Run, AnEngineThatIsMisspeltAndWhatItDoesNotHeedIsToldOnce) {
  const Ended misspelt = run({"run", "-n", "3", worker(), "print"}, {{"TUTTI_ENGINE", "glo"}});
  EXPECT_EQ(misspelt.code, 2);
  EXPECT_EQ(misspelt.err,
            "tutti run: TUTTI_ENGINE: the engine is \"glo\", which is not known\nhint: did you mean gloo?\n");
  const Ended unheeded = run({"run", "-n", "3", worker(), "print"},
                             {{"TUTTI_ENGINE", "gloo"}, {"TUTTI_ALGORITHM", "ring"}, {"TUTTI_STREAMS", "2"}});
  EXPECT_EQ(unheeded.code, 2);
  EXPECT_EQ(unheeded.err,
            "tutti run: TUTTI_ALGORITHM=ring, TUTTI_STREAMS=2 are for the engine tutti, and the bytes are moved by "
            "gloo\nhint: leave them out, or take the engine tutti\n");
  const Ended of_gpus =
      run({"run", "-q", worker(), "print"}, {{"TUTTI_ENGINE", "cpu:tutti,cuda:nccl"}, {"TUTTI_ALGORITHM", "ring"}});
  EXPECT_EQ(of_gpus.code, 0) << of_gpus.err;
}

// A rank that has nothing to say would never tell of it.
TEST(Run, AWordThatIsNoLevelOfTheLogIsTold) {
  const Ended refused = run({"run", "-n", "2", worker(), "print"}, {{"TUTTI_LOG", "loud"}});
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(refused.err,
            "tutti run: TUTTI_LOG says \"loud\", expected debug, info, warn, error or off, or the topic select\n");
  const Ended alone = run({"run", "-q", "env", "TUTTI_LOG=loud", TUTTI_TEST_WORLD, "once"});
  EXPECT_EQ(alone.code, 0);
  EXPECT_EQ(alone.err,
            "[0] [tutti] TUTTI_LOG says \"loud\", expected debug, info, warn, error or off, or the topic select: the "
            "word is left out\n");
}

TEST(Run, AMisspeltVariableIsToldOnce) {
  const Ended ended = run({"run", "-n", "2", "-q", TUTTI_TEST_WORLD, "once"}, {{"TUTTI_TIMEOUTS", "1s"}});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err,
            "[tutti] TUTTI_TIMEOUTS is no variable of tutti and means nothing (did you mean TUTTI_TIMEOUT?)\n");
}

TEST(Run, TheLastOfAnOptionCounts) {
  EXPECT_EQ(run({"run", "-n", "2", "-q", "-n", "1", worker(), "env", "WORLD_SIZE"}).out, "[0] WORLD_SIZE=1\n");
}

TEST(Run, TheMasterMayHaveAName) {
  EXPECT_EQ(run({"run", "-q", "--master-addr", "localhost", worker(), "env", "MASTER_ADDR"}).out,
            "[0] MASTER_ADDR=localhost\n");
}

TEST(Run, TheRanksGetTheNetworkOfTheJob) {
  EXPECT_EQ(run({"run", "-q", "--iface", "lo", worker(), "env", "TUTTI_IFACE"}).out, "[0] TUTTI_IFACE=lo\n");
}

TEST(Run, TheStorePortIsTheOneGiven) {
  const test::ReservedPort port;
  EXPECT_THAT(run({"run", "-q", "--store-port", port.text(), worker(), "env", "TUTTI_STORE"}).out,
              MatchesRegex("\\[0\\] TUTTI_STORE=unix:@tutti-[0-9a-f]+," + port.address() + "\n"));
}

TEST(Run, ATakenMasterPortNamesItsHolder) {
  const auto listener = listen(transport::Address{.host = "127.0.0.1", .port = 0});
  ASSERT_TRUE(listener.ok());
  const Ended ended = run({"run", "--master-port", std::to_string(listener->address.port), worker(), "print"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err,
              AllOf(HasSubstr("AddressInUse"), HasSubstr(std::to_string(getpid())), HasSubstr("--master-port")));
}

}  // namespace
}  // namespace tutti::testing
