// Environment variables: what ranks get, what is removed, what makes no sense.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tuple>

#include "tests/launch/running.h"
#include "tutti/base/sanitizers.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

TEST(Variables, GivesWorkersTorchrunsVariables) {
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

TEST(Variables, RemovesWhatOtherLaunchersLeft) {
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

TEST(Variables, TunesWhatTheUserHasNot) {
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

TEST(Variables, AVariableThatCostsSpeedGetsAWarningInAnyCase) {
  const std::map<std::string, std::string> variables = {{"OMP_NUM_THREADS", "100000"}};
  EXPECT_THAT(run({"run", "-q", worker(), "print"}, variables).err,
              AllOf(HasSubstr("OMP_NUM_THREADS is 100000, more than the "),
                    HasSubstr(" of a rank; tutti run chooses the value of a variable that is not set\n")));
  EXPECT_THAT(run({"run", "-q", "--no-tune", worker(), "print"}, variables).err, HasSubstr("more than the "));
}

#if !TUTTI_ASAN && !TUTTI_TSAN  // their malloc has neither thresholds nor figures
// 200 MB, in blocks that malloc maps unless it was told otherwise.
TEST(Variables, AProgramGivesFreedMemoryBackUnlessAskedToKeepIt) {
  EXPECT_EQ(run({"run", "-q", worker(), "free-memory"}).out, "[0] given back\n");
  EXPECT_EQ(run({"run", "-q", "--keep-memory", worker(), "free-memory"}).out, "[0] kept\n");
  EXPECT_EQ(run({"run", "-q", "--keep-memory", worker(), "free-memory"}, {{"MALLOC_MMAP_THRESHOLD_", "131072"}}).out,
            "[0] given back\n")
      << "the user's variables win";
}
#endif

// Once for all ranks, and before one of them loads its libraries.
TEST(Variables, AVariableThatMakesNoSenseIsReportedBeforeARankStarts) {
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

TEST(Variables, HelpIgnoresVariables) {
  for (const char* name : {"TUTTI_TIMEOUT", "OMP_NUM_THREADS", "TUTTI_LOG"}) {
    const Ended help = run({"run", "--help"}, {{name, "nonsense"}});
    EXPECT_EQ(help.code, 0) << name << ": " << help.err;
  }
}

TEST(Variables, DoctorReportsVariablesThatMakeNoSense) {
  for (const char* name : {"TUTTI_TIMEOUT", "OMP_NUM_THREADS"}) {
    const Ended doctor = run({"doctor"}, {{name, "nonsense"}});
    EXPECT_EQ(doctor.code, 1) << doctor.out;
    EXPECT_THAT(doctor.out, ::testing::ContainsRegex(std::string("FAIL +variables +.*") + name));
  }
  EXPECT_THAT(run({"doctor"}).out, Not(HasSubstr("variables")));
}

// Each rank would say it.
TEST(Variables, AMisspeltEngineAndVariablesItIgnoresAreReportedOnce) {
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
TEST(Variables, AnUnknownLogLevelIsReported) {
  const Ended refused = run({"run", "-n", "2", worker(), "print"}, {{"TUTTI_LOG", "loud"}});
  EXPECT_EQ(refused.code, 2);
  EXPECT_EQ(refused.out, "");
  EXPECT_EQ(refused.err,
            "tutti run: TUTTI_LOG says \"loud\", expected debug, info, warn, error or off, or the topic select\n");
  const Ended alone = run({"run", "-q", "env", "TUTTI_LOG=loud", TUTTI_TEST_WORLD, "once"});
  EXPECT_EQ(alone.code, 0);
  EXPECT_EQ(alone.err,
            "[0] [tutti] TUTTI_LOG says \"loud\", expected debug, info, warn, error or off, or the topic select: this "
            "word is ignored\n");
}

TEST(Variables, AMisspeltVariableIsReportedOnce) {
  const Ended ended = run({"run", "-n", "2", "-q", TUTTI_TEST_WORLD, "once"}, {{"TUTTI_TIMEOUTS", "1s"}});
  EXPECT_EQ(ended.code, 0);
  EXPECT_EQ(ended.err,
            "[tutti] TUTTI_TIMEOUTS is no variable of tutti and means nothing (did you mean TUTTI_TIMEOUT?)\n");
}

}  // namespace
}  // namespace tutti::testing
