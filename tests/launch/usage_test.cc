// Wrong usage of `tutti run`, help and version.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <string>
#include <vector>

#include "tests/launch/running.h"
#include "tests/launch/write_script.h"
#include "tutti/version.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;

TEST(Usage, AnEmptyValueIsNoDefault) {
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

TEST(Usage, UnsupportedTorchrunOptionsAreRejectedAndVariablesReported) {
  EXPECT_THAT(run({"run", "--duplicate-stdout-filters", "x", worker(), "print"}).err,
              HasSubstr("torchrun's --duplicate-stdout-filters has no meaning for tutti run"));
  const Ended variable = run({"run", worker(), "env", "RANK"}, {{"PET_RUN_PATH", "1"}});
  EXPECT_EQ(variable.code, 0);
  EXPECT_THAT(variable.err, HasSubstr("PET_RUN_PATH has no meaning for tutti run: it starts programs"));
}

TEST(Usage, HelpAndVersion) {
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

TEST(Usage, WrongUsageIsReportedInASentence) {
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

TEST(Usage, TheVersionIsPrinted) {
  for (const std::vector<std::string>& words :
       std::vector<std::vector<std::string>>{{"--version"}, {"run", "--version"}, {"data", "--version"}}) {
    const Ended ended = run(words);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(ended.out, "tutti " TUTTI_VERSION "\n");
  }
}

TEST(Usage, TheLastOfAnOptionCounts) {
  EXPECT_EQ(run({"run", "-n", "2", "-q", "-n", "1", worker(), "env", "WORLD_SIZE"}).out, "[0] WORLD_SIZE=1\n");
}

}  // namespace
}  // namespace tutti::testing
