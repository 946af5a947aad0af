#include "tutti/rendezvous/identity.h"

#include <gmock/gmock.h>

#include <set>

namespace tutti::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using OneHost = Identity::OneHost;

Identity good(const Environment& environment, const CallArguments& call = {}) {
  const auto identity = identify(call, environment);
  EXPECT_TRUE(identity.ok()) << (identity.ok() ? "" : to_string(identity.error()));
  return identity.ok() ? *identity : Identity{};
}

std::string bad(const Environment& environment, const CallArguments& call = {}) {
  const auto identity = identify(call, environment);
  EXPECT_FALSE(identity.ok());
  return identity.ok() ? "" : to_string(identity.error());
}

Environment with(Environment environment, const Environment& more) {
  for (const auto& [name, value] : more) environment[name] = value;
  return environment;
}
Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

const Environment kHand = {{"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.7"}, {"MASTER_PORT", "29500"}};
const Environment kTuttiRun = with(kHand, {{"TUTTI_STORE", "10.0.0.7:40001"},
                                           {"TUTTI_JOB", "j17"},
                                           {"TUTTI_GENERATION", "3"},
                                           {"LOCAL_RANK", "1"},
                                           {"LOCAL_WORLD_SIZE", "2"},
                                           {"TORCHELASTIC_RUN_ID", "j17"},
                                           {"TORCHELASTIC_RESTART_COUNT", "0"}});
const Environment kTorchrun = with(kHand, {{"TORCHELASTIC_RUN_ID", "none"},
                                           {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                           {"TORCHELASTIC_RESTART_COUNT", "2"},
                                           {"LOCAL_RANK", "1"},
                                           {"LOCAL_WORLD_SIZE", "4"}});
const Environment kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "1"},
    {"OMPI_COMM_WORLD_SIZE", "2"},
    {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
    {"OMPI_MCA_orte_hnp_uri", "1254424576.0;tcp://192.0.2.2,10.9.0.2:49975;tcp6://[fd00::2]:37721"},
    {"PMIX_NAMESPACE", "1254424577"},
    {"PMIX_RANK", "1"}};
const Environment kSbatchShell = {{"SLURM_JOB_ID", "812"},
                                  {"SLURM_PROCID", "0"},
                                  {"SLURM_NTASKS", "4"},
                                  {"SLURM_LOCALID", "0"},
                                  {"SLURM_NODEID", "0"},
                                  {"SLURM_NNODES", "2"},
                                  {"SLURM_JOB_NODELIST", "n[08-09]"},
                                  {"SLURM_TASKS_PER_NODE", "2(x2)"}};
const Environment kSlurm = with(kSbatchShell, {{"SLURM_PROCID", "3"},
                                               {"SLURM_LOCALID", "1"},
                                               {"SLURM_NODEID", "1"},
                                               {"SLURM_STEP_ID", "0"},
                                               {"SLURM_STEP_NUM_TASKS", "4"},
                                               {"SLURM_STEP_NUM_NODES", "2"},
                                               {"SLURM_STEP_NODELIST", "n[08-09]"},
                                               {"SLURM_STEP_TASKS_PER_NODE", "2(x2)"}});

TEST(Identity, NoVariablesIsAWorldOfOne) {
  const Identity me = good({{"PATH", "/bin"}, {"RANK", ""}});
  EXPECT_EQ(me.rank, 0);
  EXPECT_EQ(me.world_size, 1);
  EXPECT_EQ(me.started_by, "alone");
  EXPECT_EQ(me.method, RendezvousMethod::kNone);
  EXPECT_EQ(me.note, "");
  EXPECT_EQ(good({}, {.url = "env://"}).started_by, "alone");
}

TEST(Identity, StaleVariablesOfOtherStartersDoNotMakeAWorld) {
  EXPECT_EQ(good({{"LOCAL_RANK", "3"}, {"TORCHELASTIC_RUN_ID", "old"}, {"PMIX_NAMESPACE", "1"}}).started_by, "alone");
}

TEST(Identity, ByHand) {
  const Identity me = good(kHand);
  EXPECT_EQ(me.rank, 1);
  EXPECT_EQ(me.world_size, 4);
  EXPECT_EQ(me.local_rank, -1);
  EXPECT_EQ(me.started_by, "by hand");
  EXPECT_EQ(me.method, RendezvousMethod::kTcp);
  EXPECT_EQ(me.address, (transport::Address{.host = "10.0.0.7", .port = 29500}));
  EXPECT_EQ(me.address_source, "MASTER_ADDR and MASTER_PORT");
  EXPECT_EQ(me.one_host, OneHost::kUnknown);
  EXPECT_EQ(me.job, "port-29500");
  EXPECT_EQ(me.rank_source, "RANK in the environment");
}

TEST(Identity, AWorldOfOneNeedsNoAddressAndNoRank) {
  EXPECT_EQ(good({{"WORLD_SIZE", "1"}}).method, RendezvousMethod::kNone);
  EXPECT_EQ(good({{"WORLD_SIZE", "1"}, {"RANK", "0"}}).started_by, "by hand");
  EXPECT_EQ(good({}, {.world_size = 1}).rank, 0);
}

TEST(Identity, NamesAllThatIsMissingAtOnce) {
  EXPECT_EQ(bad({{"WORLD_SIZE", "4"}}),
            "Usage: WORLD_SIZE=4 is given, but RANK, MASTER_ADDR and MASTER_PORT are missing (hint: set them for every "
            "rank, on one host for example MASTER_ADDR=localhost MASTER_PORT=29500, or start the program with tutti "
            "run -n N, or alone with env -u WORLD_SIZE)");
  EXPECT_THAT(bad({{"RANK", "0"}}),
              HasSubstr("RANK=0 is given, but WORLD_SIZE, MASTER_ADDR and MASTER_PORT are missing"));
  EXPECT_THAT(bad({{"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}}),
              HasSubstr("MASTER_ADDR=h, MASTER_PORT=1 are given, but RANK and WORLD_SIZE are missing"));
  EXPECT_THAT(bad(without(kHand, "MASTER_PORT")),
              HasSubstr("but MASTER_PORT is missing (hint: set it for every rank, or"));
  EXPECT_THAT(bad({{"RANK", "0"}, {"WORLD_SIZE", "2"}}),
              AllOf(HasSubstr("but MASTER_ADDR and MASTER_PORT are missing"), HasSubstr("MASTER_ADDR=localhost")));
  EXPECT_THAT(bad({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "1234"}}),
              AllOf(HasSubstr("but MASTER_ADDR is missing (hint: set it for every rank, on one host for example "
                              "MASTER_ADDR=localhost, or"),
                    Not(HasSubstr("29500"))));
  EXPECT_THAT(bad(without(kHand, "RANK")), Not(HasSubstr("localhost")));
  EXPECT_THAT(bad({{"TUTTI_STORE", "h:1"}}),
              HasSubstr("TUTTI_STORE=h:1 is given, but RANK and WORLD_SIZE are missing"));
  EXPECT_THAT(bad({}, {.url = "tcp://h:1"}),
              HasSubstr("RANK and WORLD_SIZE are missing (hint: set them for every rank, or write "
                        "tcp://host:port?rank=R&world_size=N)"));
  EXPECT_THAT(bad({}, {.rank = 1}),
              HasSubstr("the rank in the call is given, but WORLD_SIZE, MASTER_ADDR and MASTER_PORT are missing"));
}

TEST(Identity, NamesAllThatIsWrongAtOnce) {
  const std::string text = bad({{"RANK", "one"}, {"WORLD_SIZE", "0"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "99999"}});
  EXPECT_THAT(text, HasSubstr("RANK is \"one\", expected a whole number from 0 to 1048576"));
  EXPECT_THAT(text, HasSubstr("WORLD_SIZE is \"0\", expected a whole number from 1 to 1048576"));
  EXPECT_THAT(text, HasSubstr("MASTER_PORT is \"99999\", expected a whole number from 1 to 65535"));
}

TEST(Identity, WhatIsThereIsNotMissing) {
  const std::string text = bad({{"RANK", "-1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}});
  EXPECT_THAT(text, HasSubstr("RANK is \"-1\""));
  EXPECT_THAT(text, testing::Not(HasSubstr("missing")));
  EXPECT_THAT(text, HasSubstr("env -u RANK"));
  EXPECT_THAT(bad({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}), HasSubstr("but MASTER_ADDR and MASTER_PORT are missing"));
}

TEST(Identity, ARankOfMpirunWithoutItsHostsClaimsNothing) {
  const std::string text = bad({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  EXPECT_THAT(text, HasSubstr("no variable says whether the ranks are on one host"));
  EXPECT_THAT(text, testing::Not(HasSubstr("the ranks are on several hosts")));
  EXPECT_THAT(text, HasSubstr("env -u OMPI_COMM_WORLD_RANK -u OMPI_COMM_WORLD_SIZE program"));
}

TEST(Identity, RanksCountFromZero) {
  EXPECT_THAT(bad(with(kHand, {{"RANK", "4"}})),
              HasSubstr("the rank is 4 by RANK in the environment, not below the world size 4 by "
                        "WORLD_SIZE in the environment (ranks count from 0)"));
  EXPECT_THAT(bad(with(kHand, {{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}})),
              HasSubstr("LOCAL_RANK is 2, not below LOCAL_WORLD_SIZE, which is 2"));
  EXPECT_THAT(bad(with(kHand, {{"LOCAL_WORLD_SIZE", "8"}})),
              HasSubstr("LOCAL_WORLD_SIZE is 8, more than the world size 4"));
}

TEST(Identity, UrlThenCallThenEnvironment) {
  const Identity url = good({}, {.url = "tcp://10.0.0.7:4000?rank=1&world_size=2"});
  EXPECT_EQ(url.rank, 1);
  EXPECT_EQ(url.rank_source, "rank= in the URL");
  EXPECT_EQ(url.address, (transport::Address{.host = "10.0.0.7", .port = 4000}));
  EXPECT_EQ(url.started_by, "by hand");
  const Identity call = good({}, {.url = "tcp://10.0.0.7:4000", .rank = 1, .world_size = 2});
  EXPECT_EQ(call.rank_source, "the call");
  const Identity mixed = good({{"WORLD_SIZE", "4"}}, {.url = "file:///tmp/x", .rank = 2});
  EXPECT_EQ(mixed.world_size_source, "WORLD_SIZE in the environment");
  EXPECT_EQ(mixed.method, RendezvousMethod::kFile);
  EXPECT_EQ(mixed.path, "/tmp/x");
  EXPECT_EQ(mixed.job, "file-x");
  const Identity local = good({}, {.url = "unix://@mine?rank=0&world_size=2"});
  EXPECT_EQ(local.method, RendezvousMethod::kUnix);
  EXPECT_EQ(local.address, (transport::Address{.path = "@mine"}));
  EXPECT_EQ(local.one_host, OneHost::kYes);
  EXPECT_EQ(local.job, "unix-mine");
  EXPECT_THAT(bad({}, {.url = "unix://@mine"}), HasSubstr("or write unix://@name?rank=R&world_size=N"));
  const Identity init = good({{"TUTTI_INIT", "tcp://10.0.0.7:4000?rank=0&world_size=2"}});
  EXPECT_EQ(init.rank_source, "rank= in TUTTI_INIT");
}

TEST(Identity, ContradictionsNameBothSources) {
  EXPECT_EQ(bad({{"RANK", "0"}}, {.url = "tcp://h:1?rank=1&world_size=2"}),
            "Usage: the rank is 1 by rank= in the URL, but 0 by RANK in the environment (hint: correct what is wrong, "
            "or unset what is left "
            "from an earlier start: env -u RANK program)");
  EXPECT_THAT(bad({}, {.url = "tcp://h:1?rank=1&world_size=2", .rank = 0}),
              HasSubstr("the rank is 1 by rank= in the URL, but 0 by the call"));
  EXPECT_THAT(bad(with(kOpenMpi, {{"WORLD_SIZE", "1"}, {"RANK", "0"}})),
              HasSubstr("the rank is 0 by RANK in the environment, but 1 by OMPI_COMM_WORLD_RANK in the environment; "
                        "the world size is 1 by "
                        "WORLD_SIZE in the environment, but 2 by OMPI_COMM_WORLD_SIZE in the environment (hint: "
                        "correct what is wrong, or unset what is left from an earlier "
                        "start: env -u RANK -u WORLD_SIZE program)"));
  EXPECT_THAT(bad(with(kOpenMpi, {{"PMI_RANK", "0"}, {"PMI_SIZE", "4"}})),
              HasSubstr("two launchers describe this process and disagree: OMPI_COMM_WORLD_RANK=1 "
                        "OMPI_COMM_WORLD_SIZE=2, but PMI_RANK=0 "
                        "PMI_SIZE=4"));
}

TEST(Identity, TuttiRun) {
  const Identity me = good(kTuttiRun);
  EXPECT_EQ(me.started_by, "tutti run");
  EXPECT_EQ(me.method, RendezvousMethod::kAgent);
  EXPECT_EQ(me.address, (transport::Address{.host = "10.0.0.7", .port = 40001}));
  EXPECT_EQ(me.local_rank, 1);
  EXPECT_EQ(me.local_world_size, 2);
  EXPECT_EQ(me.one_host, OneHost::kNo);
  EXPECT_EQ(me.job, "j17");
  EXPECT_EQ(me.generation, 3u);
  EXPECT_EQ(good(with(kTuttiRun, {{"TUTTI_STORE", "unix:/run/x"}})).address.path, "/run/x");
  const Identity two = good(with(kTuttiRun, {{"TUTTI_STORE", "10.0.0.7:1,[fd00::2]:2"}}));
  EXPECT_THAT(two.stores, testing::ElementsAre(transport::Address{.host = "10.0.0.7", .port = 1},
                                               transport::Address{.host = "fd00::2", .port = 2}));
  EXPECT_EQ(two.address, two.stores[0]);
  EXPECT_EQ(two.unix_store, transport::Address{});
  const Identity here = good(with(kTuttiRun, {{"TUTTI_STORE", "unix:@x,10.0.0.7:1"}}));
  EXPECT_EQ(here.unix_store, transport::Address{.path = "@x"});
  EXPECT_EQ(here.address, (transport::Address{.host = "10.0.0.7", .port = 1}));
  EXPECT_THAT(here.stores, testing::ElementsAre(here.address));
  EXPECT_THAT(bad(with(kTuttiRun, {{"TUTTI_STORE", "10.0.0.7:1,x"}})), HasSubstr("expected host:port or unix:path"));
  EXPECT_THAT(bad(with(kTuttiRun, {{"TUTTI_STORE", "10.0.0.7"}})),
              HasSubstr("TUTTI_STORE is \"10.0.0.7\", expected host:port"));
}

TEST(Identity, LaunchersInsideASchedulerAreTheInnerOnes) {
  EXPECT_EQ(good(with(kSlurm, kTorchrun)).rank, 1);
  EXPECT_EQ(good(with(kSlurm, kTuttiRun)).started_by, "tutti run");
}

TEST(Identity, TorchrunOnOneHostUsesASocketOfTheJob) {
  const Identity me = good(kTorchrun);
  EXPECT_EQ(me.started_by, "torchrun");
  EXPECT_EQ(me.method, RendezvousMethod::kUnix);
  EXPECT_EQ(me.job, "torchrun-none-29500");
  EXPECT_EQ(me.generation, 2u);
}

TEST(Identity, TorchrunOnSeveralHostsLeavesMasterPortToItsAgent) {
  const Identity me = good(with(kTorchrun, {{"LOCAL_WORLD_SIZE", "2"}}));
  EXPECT_EQ(me.method, RendezvousMethod::kPorts);
  EXPECT_EQ(me.address.host, "10.0.0.7");
  EXPECT_EQ(me.ports, derived_ports("torchrun-none-29500"));
  EXPECT_THAT(me.ports, testing::Not(testing::Contains(29500)));
}

TEST(Identity, OpenMpi) {
  const Identity me = good(kOpenMpi);
  EXPECT_EQ(me.rank, 1);
  EXPECT_EQ(me.world_size, 2);
  EXPECT_EQ(me.local_rank, 1);
  EXPECT_EQ(me.started_by, "mpirun");
  EXPECT_EQ(me.method, RendezvousMethod::kUnix);
  EXPECT_EQ(me.job, "mpirun-1254424577");
  EXPECT_EQ(good(with(kOpenMpi, {{"RANK", "1"}, {"WORLD_SIZE", "2"}})).rank_source, "RANK in the environment");
  EXPECT_EQ(good(with(kOpenMpi, {{"LOCAL_RANK", "7"}})).local_rank, 1) << "a stale LOCAL_RANK is not mpirun's";
}

TEST(Identity, OpenMpiOnSeveralHosts) {
  const Environment spread = with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}});
  const Identity me = good(spread);
  EXPECT_EQ(me.method, RendezvousMethod::kPorts);
  EXPECT_EQ(me.address.host, "192.0.2.2");
  EXPECT_EQ(me.address_source, "OMPI_MCA_orte_hnp_uri");
  EXPECT_EQ(good(with(spread, {{"MASTER_ADDR", "h"}})).address.host, "h");
  EXPECT_EQ(good(with(spread, {{"MASTER_ADDR", "h"}, {"MASTER_PORT", "99"}})).method, RendezvousMethod::kTcp);
  EXPECT_EQ(good(with(spread, {{"SLURM_JOB_NODELIST", "n[3-4]"}})).address.host, "n3");
  EXPECT_THAT(bad(without(spread, "OMPI_MCA_orte_hnp_uri")), HasSubstr("set MASTER_ADDR to it on every rank"));
}

TEST(Identity, MpirunInsideSlurmIsTheInnerOne) { EXPECT_EQ(good(with(kSlurm, kOpenMpi)).rank, 1); }

TEST(Identity, MpichWithoutANameOfTheJobAsksForOne) {
  const Environment pmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
  EXPECT_THAT(bad(pmi), HasSubstr("PMI_RANK gives the rank, but no variable names the job (set TUTTI_JOB"));
  const Identity me = good(with(pmi, {{"TUTTI_JOB", "mine"}}));
  EXPECT_EQ(me.method, RendezvousMethod::kUnix);
  EXPECT_EQ(me.job, "mine");
  EXPECT_EQ(me.local_rank, 1);
}

TEST(Identity, SlurmStep) {
  const Identity me = good(kSlurm);
  EXPECT_EQ(me.rank, 3);
  EXPECT_EQ(me.world_size, 4);
  EXPECT_EQ(me.local_rank, 1);
  EXPECT_EQ(me.local_world_size, 2);
  EXPECT_EQ(me.started_by, "srun");
  EXPECT_EQ(me.job, "srun-812.0");
  EXPECT_EQ(me.method, RendezvousMethod::kPorts);
  EXPECT_EQ(me.address.host, "n08");
  EXPECT_EQ(me.one_host, OneHost::kNo);
}

TEST(Identity, SlurmStepOnOneHost) {
  const Identity me =
      good(with(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"}, {"SLURM_STEP_TASKS_PER_NODE", "4"}, {"SLURM_NODEID", "0"}}));
  EXPECT_EQ(me.method, RendezvousMethod::kUnix);
  EXPECT_EQ(me.local_world_size, 4);
}

TEST(Identity, AnAllocationShellIsNoRank) {
  for (const char* step : {"", "4294967290", "4294967291"}) {
    const Identity me = good(with(kSbatchShell, {{"SLURM_STEP_ID", step}}));
    EXPECT_EQ(me.started_by, "alone") << step;
    EXPECT_EQ(me.world_size, 1) << step;
    EXPECT_THAT(me.note, HasSubstr("SLURM_NTASKS is 4, but srun did not start this process")) << step;
  }
}

TEST(Identity, AProcessThatIsAloneForLackOfVariablesGetsANote) {
  const Identity pod = good({{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}, {"JOB_COMPLETION_INDEX", "1"}});
  EXPECT_EQ(pod.started_by, "alone");
  EXPECT_THAT(pod.note, AllOf(HasSubstr("JOB_COMPLETION_INDEX is 1, but no variable says how many pods the Job has"),
                              HasSubstr("WORLD_SIZE"), HasSubstr("tutti run --nnodes")));
  for (const std::string rank : {"PMI_RANK", "OMPI_COMM_WORLD_RANK", "FLUX_TASK_RANK"}) {
    const Identity half = good({{rank, "0"}});
    EXPECT_EQ(half.world_size, 1) << rank;
    EXPECT_THAT(half.note,
                AllOf(HasSubstr(rank + " is 0, but "), HasSubstr("SIZE is not set: this process runs alone")));
  }
  EXPECT_EQ(good({{"KUBERNETES_SERVICE_HOST", "10.0.0.1"}}).note, "") << "a pod of any kind";
}

TEST(Identity, AHostileNodeListIsAnErrorNotAnAllocation) {
  EXPECT_THAT(bad(with(kSlurm, {{"SLURM_STEP_NODELIST", "n[0-999999999]"}})),
              HasSubstr("SLURM_STEP_NODELIST: the host list"));
}

TEST(Url, SaysWhatIsWrong) {
  const auto detail = [](const std::string& url) { return to_string(parse_url(url).error()); };
  EXPECT_THAT(
      detail("localhost:29500"),
      HasSubstr("has no scheme (hint: expected env://, or tcp://host:port, file:///path or unix://@name with ?rank=0"));
  EXPECT_THAT(detail("tpc://h:1"), HasSubstr("has the unknown scheme \"tpc\" (hint: did you mean tcp?)"));
  EXPECT_THAT(detail("tcp://10.0.0.7"),
              HasSubstr("has no port (hint: every rank must know it: for example tcp://10.0.0.7:29500)"));
  EXPECT_THAT(detail("tcp://:29500"), HasSubstr("has no"));
  EXPECT_THAT(detail("tcp://h:99999"), HasSubstr("has no valid host:port"));
  EXPECT_THAT(detail("tcp://h:1?rnak=0"), HasSubstr("has the unknown parameter \"rnak\" (hint: did you mean rank?)"));
  EXPECT_THAT(detail("tcp://h:1?rank=x"), HasSubstr("needs a whole number after rank="));
  EXPECT_THAT(detail("tcp://h:1?rank"), HasSubstr("needs a whole number after rank="));
  EXPECT_THAT(detail("tcp://h:1?rank=-1"), HasSubstr("needs a whole number after rank="));
  EXPECT_THAT(detail("tcp://h:1?rank=0&rank=1"), HasSubstr("gives rank twice: 0 and 1"));
  EXPECT_THAT(detail("file://x"), HasSubstr("has a path that is not absolute (hint: write three slashes: file:///x)"));
  EXPECT_THAT(detail("file://"), HasSubstr("has no path"));
  EXPECT_THAT(detail("env://h:1"), HasSubstr("use tcp://host:port"));
  EXPECT_THAT(detail("unix://"), HasSubstr("names no socket (hint: for example unix://@job-17)"));
  EXPECT_THAT(detail("unix://@?rank=0"), HasSubstr("names no socket"));
  EXPECT_THAT(detail("unix://job"), HasSubstr("is not absolute (hint: write unix://@job, or three slashes)"));
  EXPECT_THAT(detail("unix://@" + std::string(107, 'x')),
              HasSubstr("has a name of 108 bytes (hint: the system allows 107)"));
}

TEST(Url, Parses) {
  const auto v6 = parse_url("tcp://[::1]:29500/?rank=3&world_size=8");
  ASSERT_TRUE(v6.ok());
  EXPECT_EQ(v6->host, "::1");
  EXPECT_EQ(v6->port, 29500);
  EXPECT_EQ(v6->rank, 3);
  EXPECT_EQ(v6->world_size, 8);
  EXPECT_EQ(parse_url("file:///a/b?rank=0")->path, "/a/b");
  EXPECT_EQ(parse_url("env://?rank=0")->rank, 0);
  EXPECT_EQ(parse_url("unix://@a/b?rank=0")->path, "@a/b");
  EXPECT_EQ(parse_url("unix:///a/b")->path, "/a/b");
}

TEST(FileNameOf, IsPlainShortAndDistinct) {
  EXPECT_EQ(file_name_of("srun-812.0"), "srun-812.0");
  const std::vector<std::string> jobs = {"",
                                         ".",
                                         "..",
                                         "../x",
                                         "a/b",
                                         "a_b",
                                         "a:b",
                                         std::string(200, 'a'),
                                         std::string(199, 'a'),
                                         "1254424576.0;tcp://192.0.2.2:49975"};
  std::set<std::string> names;
  for (const std::string& job : jobs) {
    const std::string name = file_name_of(job);
    EXPECT_LE(name.size(), 40u);
    EXPECT_EQ(name.find('/'), std::string::npos);
    EXPECT_NE(name.front(), '.');
    names.insert(name);
  }
  EXPECT_EQ(names.size(), jobs.size());
}

TEST(DerivedPorts, AreDistinctStableAndBelowTheEphemeralRange) {
  for (const char* job : {"", "a", "srun-812.0", "torchrun-none-29500"}) {
    const auto ports = derived_ports(job);
    EXPECT_EQ(std::set(ports.begin(), ports.end()).size(), 4u);
    for (const auto port : ports) EXPECT_TRUE(port >= 20000 && port < 32000) << port;
    EXPECT_EQ(ports, derived_ports(job));
  }
  EXPECT_NE(derived_ports("srun-812.0"), derived_ports("srun-812.1"));
}

}  // namespace
}  // namespace tutti::rendezvous
