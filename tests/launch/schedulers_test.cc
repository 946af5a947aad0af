// `tutti run` in the environments of schedulers, as data; tests/schedulers has real ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "tests/harness/reserved_port.h"
#include "tests/launch/running.h"
#include "tutti/base/machine.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Variables = std::map<std::string, std::string>;

// What mpirun --map-by ppr:1:node tells its process on the node `node` of two.
Variables under_mpirun(int node) {
  return {{"OMPI_COMM_WORLD_RANK", std::to_string(node)},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
          {"OMPI_MCA_orte_hnp_uri", "1.0;tcp://127.0.0.1:1"},
          {"PMIX_NAMESPACE", "places-test"},
          {"TUTTI_SECRET", "a word that all nodes know"}};
}

TEST(InScheduler, MpirunProvidesNodesAndNumbers) {
  const test::ReservedPort master, store;
  const std::vector<std::string> command = {"run",         "-n",           "2",          "--master-port",
                                            master.text(), "--store-port", store.text(), worker(),
                                            "env",         "RANK",         "WORLD_SIZE"};
  Running second(command, under_mpirun(1)), first(command, under_mpirun(0));
  const Ended here = first.wait(), there = second.wait();
  EXPECT_EQ(here.code, 0) << here.err;
  EXPECT_THAT(there.out, AllOf(HasSubstr("[2] RANK=2\n[2] WORLD_SIZE=4\n"), HasSubstr("[3] RANK=3\n")));
  EXPECT_THAT(here.err, HasSubstr("job mpirun-places-test"));
}

// mpirun binds each of two processes to a core, and Slurm gives a task one.
TEST(InScheduler, MoreRanksThanTheCoresOfTheLauncherGetAWarning) {
  if (usable_cores() < 2) GTEST_SKIP() << "SKIP: needs two cores";
  const auto bound = [](const std::string& variable, const std::string& ranks) {
    const std::string command = std::string("exec taskset -c $(taskset -cp $$ | sed 's/.*: //; s/[-,].*//') ") +
                                TUTTI_TEST_COMMAND + " run --standalone -n " + ranks + " true";
    return run({"run", "-q", "--no-prefix", "env", variable, "sh", "-c", command}).err;
  };
  EXPECT_THAT(bound("OMPI_COMM_WORLD_SIZE=2", "2"),
              HasSubstr("2 ranks share 1 core, all that mpirun gave this process: add --bind-to none to mpirun"));
  EXPECT_THAT(bound("SLURM_JOB_ID=7", "2"),
              HasSubstr("2 ranks share 1 core, all that Slurm gave this job here: ask it for more"));
  EXPECT_THAT(bound("OMPI_COMM_WORLD_SIZE=2", "1"), Not(HasSubstr("share")));
  EXPECT_THAT(bound("OF_NO_SCHEDULER=1", "2"), Not(HasSubstr("share")));
}

TEST(InScheduler, WhatTheUserSaysWins) {
  const Ended alone = run({"run", "-q", "--nnodes", "1", worker(), "env", "WORLD_SIZE"}, under_mpirun(1));
  EXPECT_EQ(alone.out, "[0] WORLD_SIZE=1\n");
  EXPECT_EQ(run({"run", "-q", "--standalone", worker(), "env", "WORLD_SIZE"}, under_mpirun(1)).out,
            "[0] WORLD_SIZE=1\n");
}

TEST(InScheduler, SeveralLaunchersOnANodeAreReportedUnlessMeant) {
  Variables variables = under_mpirun(1);
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "2";
  variables["OMPI_COMM_WORLD_LOCAL_RANK"] = "1";
  const Ended ended = run({"run", worker(), "print"}, variables);
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("mpirun started 2 of this launcher on this node"));
  EXPECT_EQ(run({"run", "-q", "--standalone", worker(), "env", "RANK"}, variables).out, "[0] RANK=0\n");
}

TEST(InScheduler, ANumberWithoutACountIsAJobOfItsOwn) {
  const Variables pod = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"JOB_COMPLETION_INDEX", "3"}};
  const Ended alone = run({"run", worker(), "env", "WORLD_SIZE"}, pod);
  EXPECT_EQ(alone.out, "[0] WORLD_SIZE=1\n");
  EXPECT_THAT(alone.err, HasSubstr("Kubernetes numbers this node 3, but not how many there are: it runs alone"));
  const Ended nameless = run({"run", "--nnodes", "4", worker(), "print"}, pod);
  EXPECT_EQ(nameless.code, 2);
  EXPECT_THAT(nameless.err, AllOf(HasSubstr("Kubernetes does not report the address of node 0"),
                                  HasSubstr("give the pods a headless service")));
}

TEST(InScheduler, SlurmsRanksAreTakenOnOneNodeToo) {
  const Variables script = {{"SLURM_JOB_ID", "5"},
                            {"SLURM_NNODES", "1"},
                            {"SLURM_NTASKS", "3"},
                            {"SLURM_TASKS_PER_NODE", "3"},
                            {"SLURM_JOB_NODELIST", "n1"}};
  EXPECT_THAT(run({"run", "-q", worker(), "env", "WORLD_SIZE"}, script).out, HasSubstr("[2] WORLD_SIZE=3\n"));
  EXPECT_EQ(run({"run", "-q", "-n", "1", worker(), "env", "WORLD_SIZE"}, script).out, "[0] WORLD_SIZE=1\n");
}

TEST(InScheduler, WithoutSrunTheOtherNodesCannotBeStarted) {
  const Ended ended =
      run({"run", "/bin/true"},
          {{"SLURM_JOB_ID", "5"}, {"SLURM_NNODES", "2"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"PATH", "/nowhere"}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("could not start srun"), HasSubstr("--standalone runs on this node alone")));
}

TEST(InScheduler, AJobOfSeveralHostsThatRunsOnOneSaysSo) {
  const Variables elsewhere = {{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "n1.invalid 2 n2.invalid 2"}};
  for (const Variables& script : {elsewhere, Variables{{"JOB_ID", "7"}, {"NHOSTS", "2"}}}) {
    const Ended ended = run({"run", worker(), "env", "WORLD_SIZE"}, script);
    EXPECT_EQ(ended.out, "[0] WORLD_SIZE=1\n");
    EXPECT_THAT(ended.err, AllOf(HasSubstr("job has 2 hosts ("), HasSubstr("ranks run on this host alone")));
  }
  EXPECT_THAT(run({"run", "--nnodes", "1", worker(), "env", "WORLD_SIZE"}, elsewhere).err, Not(HasSubstr("2 hosts")));
}

// A script of two hosts; the launcher reaches the second one, or nothing runs.
TEST(InScheduler, AScriptOfLsfOrSgeStartsItsOtherHosts) {
  const Folder folder;
  std::ofstream(folder.path() + "/hosts") << host_name() << " 2 all.q UNDEFINED\nn2.invalid 2 all.q UNDEFINED\n";
  for (const Variables& script : {Variables{{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", host_name() + " 2 n2.invalid 2"}},
                                  Variables{{"JOB_ID", "7"}, {"PE_HOSTFILE", folder.path() + "/hosts"}}}) {
    const Ended ended = run({"run", "--ssh", "/bin/false", worker(), "env", "RANK"}, script);
    EXPECT_NE(ended.code, 0);
    EXPECT_EQ(ended.out, "");
    EXPECT_THAT(ended.err, HasSubstr("did not start tutti"));  // whichever host is reported first
    EXPECT_EQ(run({"run", "-q", "--standalone", worker(), "env", "WORLD_SIZE"}, script).out, "[0] WORLD_SIZE=1\n");
  }
}

}  // namespace
}  // namespace tutti::testing
