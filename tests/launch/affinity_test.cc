// Where ranks run and what they see, as a user of `tutti run` meets it: --bind, --devices, torchrun's names.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/harness/reserved_port.h"
#include "tests/launch/running.h"
#include "tutti/base/machine.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Arguments = std::vector<std::string>;

Ended run_with(const Arguments& options, const Arguments& program, std::map<std::string, std::string> changes = {}) {
  Arguments arguments = {"run"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  arguments.insert(arguments.end(), program.begin(), program.end());
  return run(arguments, std::move(changes));
}

TEST(Places, TheTableSaysWhereEachRankIs) {
  const Ended ended = run({"run", "-n", "2", worker(), "print"});
  EXPECT_THAT(ended.err, AllOf(HasSubstr("[tutti]   ranks 0-1  on "), HasSubstr("  local ranks 0-1  any CPU\n")));
  EXPECT_THAT(run({"run", "-q", worker(), "print"}).err, Not(HasSubstr("[tutti]")));
}

TEST(Places, BoundRanksMayRunOnTheirCoresAlone) {
  const Arguments program = {"sh", "-c", "grep Cpus_allowed_list /proc/self/status | cut -f 2"};
  const int cores = std::min(2, count_of(allowed_cores()));
  const Ended ended = run_with({"-n", std::to_string(cores), "--bind", "core"}, program);
  EXPECT_EQ(ended.code, 0);
  std::vector<std::string> places;
  for (int rank = 0; rank < cores; ++rank) {
    const std::string mark = "[" + std::to_string(rank) + "] ";
    const auto begin = ended.out.find(mark);
    ASSERT_NE(begin, std::string::npos) << ended.out;
    places.push_back(ended.out.substr(begin + mark.size(), ended.out.find('\n', begin) - begin - mark.size()));
    EXPECT_THAT(ended.err, HasSubstr("CPU " + places.back().substr(0, places.back().find_first_of(",-"))));
  }
  if (cores > 1) {
    EXPECT_NE(places[0], places[1]);
  }
  EXPECT_THAT(run_with({"--bind", "cores"}, program).err,
              HasSubstr("--bind needs core, socket, numa or none, not 'cores'"));
}

TEST(Places, RanksThatShareACoreAreReported) {
  const int cores = count_of(allowed_cores());
  const Ended ended = run({"run", "-q", "-n", std::to_string(2 * cores + 1), "--bind", "core", "true"});
  EXPECT_EQ(ended.code, 0);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("--bind core: " + std::to_string(2 * cores + 1) + " ranks share "),
                               HasSubstr("start fewer ranks (-n)")));
  EXPECT_THAT(run({"run", "-q", "-n", "1", "--bind", "core", "true"}).err, Not(HasSubstr("share")));
}

TEST(Places, DevicesAreCountedAsCudaCounts) {
  const Arguments program = {worker(), "env", "CUDA_VISIBLE_DEVICES", "LOCAL_RANK"};
  const std::map<std::string, std::string> four = {{"CUDA_VISIBLE_DEVICES", "4,5,6,7"}};
  EXPECT_EQ(run_with({"-q", "--devices", "1,3"}, program, four).out,
            "[0] CUDA_VISIBLE_DEVICES=5,7\n[0] LOCAL_RANK=0\n");
  EXPECT_THAT(run_with({"-n", "gpu", "--devices", "2-3", "--visible", "one"}, program, four).out,
              AllOf(HasSubstr("[0] CUDA_VISIBLE_DEVICES=6\n[0] LOCAL_RANK=0\n"),
                    HasSubstr("[1] CUDA_VISIBLE_DEVICES=7\n[1] LOCAL_RANK=1\n")));
  EXPECT_THAT(run_with({"-n", "2", "--virtual-local-rank"}, program, four).out,
              HasSubstr("[1] CUDA_VISIBLE_DEVICES=5\n[1] LOCAL_RANK=0\n"));
  EXPECT_THAT(run_with({"-n", "auto"}, program, four).err, HasSubstr("[tutti]   rank 3  on "));

  const Ended missing = run_with({"--devices", "4"}, program, four);
  EXPECT_EQ(missing.code, 2);
  EXPECT_THAT(missing.err, HasSubstr("--devices names GPU 4, but 4 GPUs are visible on this host, numbered from 0"));
  EXPECT_THAT(run_with({"-n", "gpu"}, program, {{"CUDA_VISIBLE_DEVICES", "-1"}}).err,
              HasSubstr("-n gpu, but no GPU is visible on this host"));
  EXPECT_THAT(run_with({"--visible", "ones"}, program).err, HasSubstr("--visible"));
}

TEST(Torchrun, ItsSpellingsAndVariablesAreUnderstood) {
  const Arguments program = {worker(), "env", "WORLD_SIZE", "ROLE_NAME"};
  EXPECT_THAT(run_with({"-q", "--nproc_per_node=2", "--role", "trainer"}, program).out,
              HasSubstr("[1] WORLD_SIZE=2\n[1] ROLE_NAME=trainer\n"));
  EXPECT_THAT(run_with({"-q"}, program, {{"PET_NPROC_PER_NODE", "3"}, {"PET_ROLE", "r"}}).out,
              HasSubstr("[2] WORLD_SIZE=3\n[2] ROLE_NAME=r\n"));
  EXPECT_THAT(run_with({"-q", "-n", "1"}, program, {{"PET_NPROC_PER_NODE", "3"}}).out, HasSubstr("WORLD_SIZE=1\n"));
  const Ended wrong = run_with({}, program, {{"PET_NNODES", "many"}});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("--nnodes needs a number of nodes from 1 to 100000, or MIN:MAX, not 'many'"),
                               HasSubstr("PET_NNODES is 'many' in the environment")));
  // By the name that errors have for it, and found wrong later.
  EXPECT_THAT(run_with({}, program, {{"PET_SHUTDOWN_TIMEOUT", "soon"}}).err,
              AllOf(HasSubstr("--grace needs a duration"), HasSubstr("PET_SHUTDOWN_TIMEOUT is 'soon'")));
  EXPECT_THAT(run_with({}, program, {{"PET_NPROC_PER_NODE", "some"}}).err,
              AllOf(HasSubstr("-n needs a number of ranks"), HasSubstr("PET_NPROC_PER_NODE is 'some'")));
  EXPECT_THAT(run_with({"-n", "none"}, program, {{"PET_NPROC_PER_NODE", "some"}}).err,
              Not(HasSubstr("PET_NPROC_PER_NODE")));
}

TEST(Torchrun, TheEndpointOverridesTheMaster) {
  const Arguments program = {worker(), "env", "MASTER_ADDR", "MASTER_PORT"};
  const test::ReservedPort port;
  const std::string place = "localhost:" + port.text();
  const std::string expected = "[0] MASTER_ADDR=localhost\n[0] MASTER_PORT=" + port.text() + "\n";
  const Arguments master = {"-q", "--master-addr", "127.0.0.2", "--master-port", "1"};
  EXPECT_EQ(run_with(master, program, {{"PET_RDZV_ENDPOINT", place}}).out, expected);
  Arguments options = master;
  options.insert(options.end(), {"--rdzv_backend", "static", "--rdzv_endpoint", place});
  EXPECT_EQ(run_with(options, program).out, expected);
}

TEST(Torchrun, OptionsWithoutEffectAreReportedInOneWarning) {
  const Ended ended = run_with(
      {"--monitor_interval=5", "--start-method", "spawn", "--event-log-handler", "null", "--logs_specs", "default",
       "--signals-to-handle=SIGTERM", "--use-env", "--rdzv-conf", "close_timeout=3,read_timeout=60"},
      {worker(), "env", "RANK"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "[0] RANK=0\n");
  EXPECT_THAT(ended.err,
              HasSubstr("[tutti] --monitor-interval, --start-method, --event-log-handler, --logs-specs, "
                        "--signals-to-handle, --use-env, close_timeout of --rdzv-conf, read_timeout of --rdzv-conf "
                        "change nothing for tutti run"));
}

TEST(Torchrun, AScriptOfPythonIsStartedByPython) {
  const Folder folder;
  std::ofstream(folder.path() + "/train.py") << "import os, sys\nprint(os.environ['RANK'], sys.argv[1:], flush=True)\n";
  const Ended ended = run_with({"--nproc_per_node=1"}, {folder.path() + "/train.py", "--epochs", "3"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(ended.out, "[0] 0 ['--epochs', '3']\n");
  const Ended itself = run_with({"--no-python"}, {folder.path() + "/train.py"});
  EXPECT_EQ(itself.code, 2);
  EXPECT_THAT(itself.err, HasSubstr("is not executable"));
  // One that names its interpreter is started by that.
  std::ofstream(folder.path() + "/own.py") << "#!/bin/sh\necho from sh\n";
  std::filesystem::permissions(folder.path() + "/own.py", std::filesystem::perms::owner_all);
  EXPECT_EQ(run_with({}, {folder.path() + "/own.py"}).out, "[0] from sh\n");
  EXPECT_EQ(run_with({}, {"own.py"}, {{"PATH", folder.path() + ":/usr/bin:/bin"}}).out, "[0] from sh\n");
}

TEST(Torchrun, OneNodeWithAnEndpointNeedsNoSecret) {
  const test::ReservedPort port;
  const Ended ended =
      run_with({"--nnodes=1", "--nproc_per_node=2", "--rdzv_backend=c10d", "--rdzv_endpoint=localhost:" + port.text(),
                "--rdzv_conf", "last_call_timeout=3,timeout=2"},
               {worker(), "env", "WORLD_SIZE"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("[0] WORLD_SIZE=2\n"), HasSubstr("[1] WORLD_SIZE=2\n")));
}

TEST(Torchrun, OptionsWithAnotherNameHereAreMapped) {
  const Ended prefixed = run_with(
      {"-n", "2", "--role", "trainer", "--log-line-prefix-template", "<${role_name}${local_rank} of ${rank}>: "},
      {worker(), "env", "RANK"});
  EXPECT_THAT(prefixed.out, AllOf(HasSubstr("<trainer0 of 0>: RANK=0\n"), HasSubstr("<trainer1 of 1>: RANK=1\n")));
  const Ended standard =
      run_with({"--log-line-prefix-template", "$$ $rank ${hostname} $other ${other} $"}, {worker(), "env", "RANK"});
  EXPECT_EQ(standard.out, "$ 0 " + host_name() + " $other ${other} $RANK=0\n") << "as Python's Template";
  EXPECT_EQ(run_with({}, {worker(), "env", "RANK"}, {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "<${rank}> "}}).out,
            "<0> RANK=0\n");
  EXPECT_EQ(run_with({"--no-prefix"}, {worker(), "env", "RANK"}, {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "x"}}).out,
            "RANK=0\n");
  EXPECT_EQ(run_with({"--local-addr", "localhost"}, {worker(), "env", "RANK"}).code, 0) << "a name";
  const Ended nowhere = run_with({"--local-addr", "no-such-host.invalid"}, {worker(), "print"});
  EXPECT_EQ(nowhere.code, 2);
  EXPECT_THAT(nowhere.err, HasSubstr("--local-addr no-such-host.invalid: "));
  const Ended bound = run_with({"--numa-binding", "node", "--local-addr", "127.0.0.1"}, {worker(), "env", "RANK"});
  EXPECT_EQ(bound.code, 0) << bound.err;
  EXPECT_THAT(bound.err, HasSubstr("CPU "));  // the table of ranks
  EXPECT_EQ(run_with({}, {worker(), "env", "RANK"}, {{"PET_NUMA_BINDING", "socket"}}).code, 0);
  const Ended unknown = run_with({"--numa-binding", "core-complex"}, {worker(), "print"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("there is no --numa-binding 'core-complex'"));
  EXPECT_THAT(run_with({"--local-addr", "203.0.113.7"}, {worker(), "print"}).err,
              HasSubstr("--local-addr 203.0.113.7 is no address of this host"));
}

TEST(Torchrun, WhatHasNoMeaningHereIsSaid) {
  EXPECT_THAT(run_with({"--standalone", "--nnodes", "2"}, {worker(), "print"}).err,
              HasSubstr("--standalone is one node, --nnodes says 2"));
}

TEST(Torchrun, LocalRankComesAsAnArgumentOnRequest) {
  EXPECT_EQ(run_with({"-q", "--pass-local-rank"}, {worker(), "arguments", "a"}).out,
            "[0] argument a\n[0] argument --local-rank=0\n");
  EXPECT_THAT(run_with({"-q", "-n", "2"}, {worker(), "arguments", "log-${local_rank}"}).out,
              AllOf(HasSubstr("[0] argument log-0\n"), HasSubstr("[1] argument log-1\n")));
}

TEST(Torchrun, AModuleOfPythonIsAProgram) {
  const Ended ended = run_with({"-q", "-m"}, {"this"});
  EXPECT_THAT(ended.out, HasSubstr("[0] The Zen of Python"));
  EXPECT_THAT(run_with({"-m", "--no-python"}, {"this"}).err, HasSubstr("-m starts Python, --no-python does not"));
}

}  // namespace
}  // namespace tutti::testing
