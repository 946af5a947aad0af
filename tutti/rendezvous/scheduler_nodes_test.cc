// Schedulers as data: the environments that they give a launcher, and what it makes of them.
#include "tutti/rendezvous/scheduler_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* kNodeFile = "n1.cluster\nn1.cluster\nn2.cluster\n\nn1.cluster\n";

Result<std::optional<Allocation>> ask(const Environment& environment, const HostNames& names = {"n2", ""}) {
  return allocation_of(environment, names, [](const std::string& path) -> Result<std::string> {
    if (path == "/var/spool/nodes") return std::string(kNodeFile);
    if (path == "/sge/pe_hostfile")
      return std::string("n1.cluster 8 all.q@n1 UNDEFINED\nn2.cluster 4 all.q@n2 <NULL>\n");
    if (path == "/empty") return std::string("\n");
    return Error{.code = Code::kNotFound, .detail = "there is no file " + path};
  });
}

Environment joined(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}

const Environment kSbatch = {{"SLURM_JOB_ID", "77"},          {"SLURM_JOB_NUM_NODES", "3"},
                             {"SLURM_NNODES", "3"},           {"SLURM_JOB_NODELIST", "n[08-09],x1"},
                             {"SLURM_NTASKS", "5"},           {"SLURM_TASKS_PER_NODE", "2(x2),1"},
                             {"SLURM_PROCID", "0"},           {"SLURM_NODEID", "0"},
                             {"SLURM_STEP_ID", "4294967291"}, {"SLURM_STEPID", "4294967291"}};
const Environment kStep = joined(kSbatch, {{"SLURM_STEP_ID", "4"},
                                           {"SLURM_STEP_NUM_NODES", "3"},
                                           {"SLURM_STEP_NUM_TASKS", "3"},
                                           {"SLURM_NTASKS", "3"},
                                           {"SLURM_STEP_NODELIST", "n[08-09],x1"},
                                           {"SLURM_NODEID", "1"}});

TEST(SchedulerNodes, OutsideThereIsNothing) {
  EXPECT_EQ(*ask({}), std::nullopt);
  EXPECT_EQ(*ask(joined(kStep, {{"TUTTI_STORE", "127.0.0.1:1"}})),
            std::nullopt);  // a rank that starts a job of its own
}

TEST(SchedulerNodes, AScriptOfSlurmHasToStartTheOthers) {
  const auto found = **ask(kSbatch);
  EXPECT_EQ(found.others, Allocation::Others::kSrun);
  EXPECT_EQ(found.nodes, 3);
  EXPECT_EQ(found.node, std::nullopt);
  EXPECT_THAT(found.hosts, ElementsAre("n08", "n09", "x1"));
  EXPECT_THAT(found.ranks, ElementsAre(2, 2, 1));
  EXPECT_EQ(found.job, "slurm-77");
}

TEST(SchedulerNodes, ANodeThatSlurmDoesNotHaveIsReportedWithItsVariable) {
  const auto found = ask(joined(kStep, {{"SLURM_NODEID", "5"}}));
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().detail,
            "SLURM_NODEID is 5, and the step has 3 nodes (SLURM_STEP_NUM_NODES, or SLURM_NNODES)");
}

TEST(SchedulerNodes, ProcessorsOfSlurmAreNoRanksThatSomebodyAskedFor) {
  Environment environment = kSbatch;
  environment.erase("SLURM_NTASKS");
  EXPECT_THAT((**ask(environment)).ranks, IsEmpty());
  environment["SLURM_JOB_NUM_NODES"] = "1";
  EXPECT_EQ(*ask(environment), std::nullopt);
}

TEST(SchedulerNodes, AStepOfSlurmIsOneOfItsNodes) {
  const auto found = **ask(kStep);
  EXPECT_EQ(found.others, Allocation::Others::kStarted);
  EXPECT_EQ(found.nodes, 3);
  EXPECT_EQ(found.node, 1);
  EXPECT_EQ(found.first_host, "n08");
  EXPECT_EQ(found.job, "slurm-77.4");
  EXPECT_EQ(*ask(joined(kStep, {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_NUM_TASKS", "1"}})), std::nullopt);
}

TEST(SchedulerNodes, SeveralLaunchersOnOneNodeAreAMistake) {
  const auto slurm = ask(joined(kStep, {{"SLURM_STEP_NUM_TASKS", "12"}}));
  EXPECT_EQ(slurm.error().code, Code::kUsage);
  EXPECT_EQ(slurm.error().detail,
            "srun started 4 of this launcher on this node, and each would start ranks of its own");
  EXPECT_THAT(slurm.error().hint, HasSubstr("srun --nodes 3 --ntasks 3 --ntasks-per-node 1 tutti run"));
  const auto mpi = ask({{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                        {"OMPI_COMM_WORLD_LOCAL_RANK", "1"}});
  EXPECT_EQ(mpi.error().detail,
            "mpirun started 2 of this launcher on this node, and each would start ranks of its own");
}

TEST(SchedulerNodes, AListOfHostsThatMakesNoSenseIsNamed) {
  EXPECT_THAT(ask(joined(kStep, {{"SLURM_STEP_NODELIST", "n[1-"}})).error().detail, HasSubstr("SLURM_STEP_NODELIST: "));
}

TEST(SchedulerNodes, PbsListsAHostForEachSlot) {
  const Environment script = {{"PBS_NODEFILE", "/var/spool/nodes"}, {"PBS_JOBID", "12.server"}, {"PBS_TASKNUM", "1"}};
  const auto found = **ask(script);
  EXPECT_EQ(found.others, Allocation::Others::kSsh);
  EXPECT_THAT(found.hosts, ElementsAre("n1.cluster", "n2.cluster"));
  EXPECT_THAT(found.ranks, ElementsAre(3, 1));
  EXPECT_EQ(**ask(joined(script, {{"PBS_TASKNUM", "00000001"}})), found);
  EXPECT_EQ(found.first_host, "n1.cluster");
  EXPECT_EQ(found.job, "pbs-12.server");
  const auto started = **ask(joined(script, {{"PBS_TASKNUM", "2"}}));
  EXPECT_EQ(started.others, Allocation::Others::kStarted);
  EXPECT_EQ(started.node, 1);
}

TEST(SchedulerNodes, PbsFilesThatDoNotFitAreNamed) {
  EXPECT_THAT(ask({{"PBS_NODEFILE", "/empty"}}).error().detail,
              HasSubstr("PBS_NODEFILE is /empty, which names no host"));
  EXPECT_THAT(ask({{"PBS_NODEFILE", "/gone"}}).error().detail, HasSubstr("PBS_NODEFILE: there is no file /gone"));
  EXPECT_THAT(ask({{"PBS_NODEFILE", "/gone"}}).error().hint, HasSubstr("--standalone ignores PBS"));
  EXPECT_THAT(ask({{"SLURM_JOB_ID", "5"}, {"SLURM_NNODES", "x"}}).error().detail,
              HasSubstr("SLURM_NNODES is 'x', which is not a count of a scheduler"));
  EXPECT_EQ(ask({{"PBS_NODEFILE", "/var/spool/nodes"}, {"PBS_TASKNUM", "3"}}, {"n7", ""}).error().detail,
            "this host, n7, is not in /var/spool/nodes (PBS_NODEFILE)");
}

TEST(SchedulerNodes, ScriptsOfLsfAndSgeHaveToStartTheOthers) {
  const HostNames first = {"n1", ""};
  const auto lsf = **ask({{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "n1 8 n2 4 "}}, first);
  EXPECT_EQ(lsf.scheduler, "LSF");
  EXPECT_THAT(lsf.hosts, ElementsAre("n1", "n2"));
  EXPECT_THAT(lsf.ranks, ElementsAre(8, 4));
  EXPECT_EQ(lsf.nodes, 2);
  EXPECT_EQ(lsf.job, "lsf-7");
  EXPECT_EQ(lsf.others, Allocation::Others::kSsh);
  const auto sge = **ask({{"JOB_ID", "9"}, {"PE_HOSTFILE", "/sge/pe_hostfile"}}, first);
  EXPECT_EQ(sge.scheduler, "SGE");
  EXPECT_THAT(sge.hosts, ElementsAre("n1.cluster", "n2.cluster"));
  EXPECT_THAT(sge.ranks, ElementsAre(8, 4));
  EXPECT_EQ(sge.first_host, "n1.cluster");
}

TEST(SchedulerNodes, AScriptOfLsfOrSgeThatCannotStartTheOthersSaysSo) {
  const auto task = **ask({{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "n1 8 n2 4"}}, {"n2", ""});
  EXPECT_EQ(task.nodes, std::nullopt);
  EXPECT_THAT(task.hosts, IsEmpty());
  EXPECT_EQ(
      task.note,
      "this LSF job has 2 hosts (LSB_MCPU_HOSTS), of which n1 is the first and this host, n2, is not: ranks run on "
      "this host alone (--hosts names the hosts)");
  EXPECT_EQ(*ask({{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "n1 8"}}, {"n2", ""}), std::nullopt) << "of one host";
  EXPECT_EQ((**ask({{"JOB_ID", "9"}, {"NHOSTS", "2"}})).note,
            "this SGE job has 2 hosts (NHOSTS), but PE_HOSTFILE, which names them, is not set: ranks run on this host "
            "alone (--hosts names the hosts)");
  EXPECT_EQ(*ask({{"JOB_ID", "9"}, {"NHOSTS", "1"}}), std::nullopt);
}

TEST(SchedulerNodes, WhatLsfAndSgeCannotMeanIsNamed) {
  EXPECT_EQ(ask({{"LSB_JOBID", "7"}, {"LSB_MCPU_HOSTS", "n1 8 n2"}}).error().detail,
            "LSB_MCPU_HOSTS: \"n2\" is followed by no number of slots");
  EXPECT_EQ(ask({{"JOB_ID", "9"}, {"PE_HOSTFILE", "/gone"}}).error().detail, "PE_HOSTFILE: there is no file /gone");
  EXPECT_EQ(*ask({{"JOB_ID", "9"}}), std::nullopt);
  EXPECT_EQ(*ask({{"LSB_MCPU_HOSTS", "n1 8"}}), std::nullopt);
}

TEST(SchedulerNodes, MpirunStartsOneOnEachNode) {
  const auto found = **ask({{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                            {"PMIX_NAMESPACE", "123"},
                            {"OMPI_MCA_orte_hnp_uri", "1.0;tcp://192.0.2.2,10.0.0.5:49975"}});
  EXPECT_EQ(found.nodes, 2);
  EXPECT_EQ(found.node, 1);
  EXPECT_EQ(found.first_host, "192.0.2.2");
  EXPECT_EQ(found.job, "mpirun-123");
  const auto hydra = **ask({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "1"}});
  EXPECT_EQ(hydra.node, 0);
  EXPECT_EQ(hydra.first_host, "");
  EXPECT_EQ(*ask({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}), std::nullopt);
}

TEST(SchedulerNodes, PodsOfAnIndexedJobFindTheFirstByTheirOwnName) {
  const Environment pod = {{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"JOB_COMPLETION_INDEX", "3"}};
  const auto found = **ask(pod, {"train-3", "train-3.ranks.default.svc.cluster.local"});
  EXPECT_EQ(found.nodes, std::nullopt);
  EXPECT_EQ(found.node, 3);
  EXPECT_EQ(found.first_host, "train-0.ranks.default.svc.cluster.local");
  EXPECT_EQ(found.job, "kubernetes-train");
  EXPECT_EQ((**ask(pod, {"train-3", "train-3"})).first_host, "");
  EXPECT_EQ(*ask({{"JOB_COMPLETION_INDEX", "3"}}), std::nullopt);  // some other system's variable
}

}  // namespace
}  // namespace tutti::rendezvous
