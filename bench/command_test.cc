// `tutti bench` as a user types it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "bench/collectives/operation.h"
#include "bench/comparison/program.h"
#include "tests/launch/running.h"
#include "tutti/base/sanitizers.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

using testing::Ended;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::run;
using ::testing::StartsWith;

TEST(BenchCommand, PrintsALineOfJsonForEachSize) {
  const Ended ended = run({"bench", "all_reduce", "-n", "2", "--json", "--max", "64", "--rounds", "1"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto lines = split(trim(ended.out), '\n');
  ASSERT_EQ(lines.size(), 2u) << ended.out;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const auto line = nlohmann::json::parse(lines[i]);
    EXPECT_EQ(line["bytes"], i == 0 ? 8 : 64);
    EXPECT_EQ(line["ranks"], 2);
    EXPECT_EQ(line["wrong"], 0);
    EXPECT_GT(line["us"], 0);
    EXPECT_GT(line["p99_us"], 0);
  }
  EXPECT_EQ(ended.err, "");
}

TEST(BenchCommand, SizesThatHoldNothingAreWrongUsageAndNoFailedJob) {
  const Ended ended = run({"bench", "all_to_all", "-n", "2", "--sizes", "4"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.out, "");
  EXPECT_EQ(
      ended.err,
      "tutti bench: no size up to 4 B holds an element of f32 for each rank\nhint: larger ones: --sizes 4K,1M, or "
      "--max 1M\n");
  EXPECT_EQ(run({"bench", "all_to_all", "-n", "2", "--sizes", "8", "--rounds", "1", "--json"}).code, 0);
}

TEST(BenchCommand, AnOperationThatWasNotMeasuredIsALineToo) {
  const Ended ended = run({"bench", "all_to_all,barrier", "-n", "4", "--sizes", "8", "--rounds", "1", "--json"});
  EXPECT_EQ(ended.code, 2);
  const auto lines = split(trim(ended.out), '\n');
  ASSERT_EQ(lines.size(), 2u) << ended.out;
  const auto line = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(line["op"], "all_to_all");
  EXPECT_EQ(line["not_measured"], "no size from 8 B to 8 B holds 4 elements of f32, one for each rank");
  EXPECT_EQ(nlohmann::json::parse(lines[1])["op"], "barrier");
  EXPECT_THAT(ended.err, HasSubstr("all_to_all was not measured"));
}

TEST(BenchCommand, ATableForPeopleEndsWithAVerdict) {
  const Ended ended = run({"bench", "broadcast", "-n", "2", "--min", "4K", "--max", "4K", "--rounds", "1"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, StartsWith("broadcast, 2 ranks, f32, heap memory"));
  EXPECT_THAT(ended.out, HasSubstr("verdict: broadcast of 4 KiB takes"));
  EXPECT_THAT(ended.out, HasSubstr("all results right"));
}

TEST(BenchCommand, EveryOperationOverTcpAndFromPrivateMemory) {
  const Ended ended = run({"bench", "all", "-n", "2", "--json", "--min", "256K", "--max", "256K", "--rounds", "1",
                           "--warm-up", "0", "--transport", "tcp", "--memory", "private"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(split(trim(ended.out), '\n').size(), bench::operations().size()) << ended.out;
  EXPECT_THAT(ended.out, HasSubstr("\"hosts\":2"));
}

TEST(BenchCommand, SeveralOperationsTypesAndGroups) {
  const Ended ended = run({"bench", "all_reduce,all_to_all_v", "-n", "4", "--json", "--groups", "even_odd", "--dtype",
                           "bf16", "--op", "sum", "--sizes", "1K,64", "--rounds", "1", "--rewrite"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto lines = split(trim(ended.out), '\n');
  ASSERT_EQ(lines.size(), 4u) << ended.out;
  const auto line = nlohmann::json::parse(lines[1]);
  EXPECT_EQ(line["bytes"], 1024);
  EXPECT_EQ(line["ranks"], 2);
  EXPECT_EQ(line["groups"], 2);
  EXPECT_EQ(line["dtype"], "bf16");
  EXPECT_EQ(line["rewrite"], true);
  EXPECT_EQ(nlohmann::json::parse(lines[3])["op"], "all_to_all_v");
}

bool has_peer(const std::string& name) {
  return std::filesystem::exists(std::string(TUTTI_TEST_PEERS "/peer_") + name);
}

TEST(BenchCommand, ComparesWithPeersInTurn) {
  for (const std::string peer : {"bare", "gloo", "mpi"}) {
    SCOPED_TRACE(peer);
    if (!has_peer(peer) || (peer == "mpi" && !bench::find_in_path("mpirun"))) continue;
    const Ended ended = run({"bench", "all_reduce", "-n", "2", "--peers", "--against", peer, "--sizes", "4K,64K",
                             "--turns", "2", "--rounds", "1", "--json"});
    ASSERT_EQ(ended.code, 0) << ended.err;
    const auto lines = split(trim(ended.out), '\n');
    ASSERT_EQ(lines.size(), 4u) << ended.out;
    const auto theirs = nlohmann::json::parse(lines[3]);
    EXPECT_EQ(theirs["peer"], peer);
    EXPECT_EQ(theirs["bytes"], 65536);
    EXPECT_EQ(theirs["turns"], 2);
    EXPECT_GT(theirs["ratio"], 0);
  }
}

TEST(BenchCommand, EveryVerbOfThePeersThatAreHere) {
  std::string peers;
  for (const std::string peer : {"gloo", "mpi"})
    if (has_peer(peer) && (peer == "gloo" || bench::find_in_path("mpirun"))) peers += (peers.empty() ? "" : ",") + peer;
  if (peers.empty())
    GTEST_SKIP() << "neither Open MPI nor Gloo is here (Debian: libopenmpi-dev openmpi-bin libgloo-dev)";
  for (const std::string op : {"reduce", "broadcast", "all_gather", "gather", "scatter", "reduce_scatter", "all_to_all",
                               "send_recv", "ping_pong", "barrier"}) {
    std::vector<std::string> line = {"bench",   op,  "-n",       "3", "--peers",   "--against", peers,
                                     "--turns", "1", "--rounds", "1", "--warm-up", "0"};
    if (op != "barrier") line.insert(line.end(), {"--sizes", "48"});
    const Ended ended = run(line);
    ASSERT_EQ(ended.code, 0) << op << ended.err;
    EXPECT_THAT(ended.out, HasSubstr("verdict: " + op + ": ahead of "));
  }
}

TEST(BenchCommand, ALineOfTheTableAndWhetherItIsMet) {
  if (!has_peer("bare")) GTEST_SKIP() << "the bare loop is not built under sanitizers";
  const Ended ended =
      run({"bench", "--peers", "--against", "bare", "--only", "bare loop", "--turns", "1", "--rounds", "1"});
  EXPECT_THAT(ended.code, ::testing::AnyOf(0, 1)) << ended.err;  // met or not
  EXPECT_THAT(ended.out, HasSubstr("16 MiB"));
  EXPECT_THAT(ended.out, HasSubstr("0.9x"));
  EXPECT_THAT(ended.out, ::testing::ContainsRegex("verdict: [0-3] of 3 met"));
}

// Of a size of which a round has few calls: each waits several times for a thread that copies through the host, which
// on a busy machine takes milliseconds.
TEST(BenchCommand, OnGpuMemory) {
  const std::map<std::string, std::string> gpus = {{"TUTTI_CUDA_PATH", TUTTI_TEST_FAKE_CUDA},
                                                   {"CUDA_VISIBLE_DEVICES", "0,1"}};
  const Ended ended = run(
      {"bench", "all", "-n", "2", "--memory", "cuda", "--sizes", "512K", "--rounds", "1", "--warm-up", "0", "--json"},
      gpus);
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto lines = split(trim(ended.out), '\n');
  ASSERT_EQ(lines.size(), bench::operations().size()) << ended.out;
  const auto line = nlohmann::json::parse(lines[0]);
  EXPECT_EQ(line["memory"], "cuda");
  EXPECT_EQ(line["plan"], "staged");
  EXPECT_EQ(line["wrong"], 0);
}

TEST(BenchCommand, WithoutAGpuItsMemoryIsRefused) {
  const Ended ended = run({"bench", "all_reduce", "-n", "2", "--memory", "cuda"}, {{"TUTTI_DEVICE", "cpu"}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--memory cuda: no GPU is visible to rank 0, which computes on cpu"));
}

TEST(BenchCommand, BetweenTwoHosts) {
  const Ended ended =
      run({"bench", "all_reduce", "-n", "2", "--two-hosts", "--sizes", "4K", "--rounds", "1", "--json"});
  if (ended.code == 2 && ended.err.find("cannot make two network namespaces") != std::string::npos)
    GTEST_SKIP() << ended.err;
  ASSERT_EQ(ended.code, 0) << ended.err;
  const auto line = nlohmann::json::parse(ended.out);
  EXPECT_EQ(line["hosts"], 2);
  EXPECT_GT(line["limit_us"], 0);
}

TEST(BenchCommand, APlotWithoutGnuplotIsRefusedBeforeTheRun) {
  const Ended ended = run({"bench", "all_reduce", "-n", "2", "--plot", "/tmp/figure.svg"}, {{"PATH", "/nonexistent"}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("--plot draws with gnuplot, which is not here"));
  EXPECT_THAT(ended.err, HasSubstr("gnuplot-nox"));
}

TEST(BenchCommand, WithoutMpirunTheEngineMpiIsRefused) {
  const Ended ended = run({"bench", "all_reduce", "-n", "2", "--engine", "mpi"}, {{"PATH", "/nonexistent"}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, HasSubstr("there is no mpirun here"));
}

TEST(BenchCommand, HeedsTheTransportOfTheEnvironment) {
  const Ended ended = run({"bench", "all_reduce", "-n", "2", "--json", "--min", "1M", "--max", "1M", "--rounds", "1"},
                          {{"TUTTI_TRANSPORT", "tcp"}});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, HasSubstr("\"hosts\":2"));
  EXPECT_THAT(ended.out, Not(HasSubstr("\"plan\":\"direct\""))) << "which plan is for the network to say";
}

TEST(BenchCommand, WhatTheEnvironmentSaysOfTuttisEngineIsRefusedOnceBesideAnother) {
  const Ended ended = run({"bench", "all_reduce", "-n", "2", "--engine", "gloo"}, {{"TUTTI_ALGORITHM", "ring"}});
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.err,
            "tutti bench: TUTTI_ALGORITHM=ring is for the engine tutti, and the bytes are moved by gloo\n"
            "hint: leave it out, or take the engine tutti\n");
}

TEST(BenchCommand, IsARankOfTheWorldAroundItWithoutN) {
  const Ended ended = run(
      {"run", "-n", "3", "-q", "--no-prefix", "--", TUTTI_TEST_COMMAND, "bench", "barrier", "--json", "--rounds", "1"});
  ASSERT_EQ(ended.code, 0) << ended.err;
  EXPECT_EQ(nlohmann::json::parse(ended.out)["ranks"], 3);
}

TEST(BenchCommand, MemoryThatTheSystemDoesNotGiveIsNamed) {
#if TUTTI_ASAN || TUTTI_TSAN
  GTEST_SKIP() << "a sanitizer ends the process itself where it is asked for that much memory";
#endif
  const Ended ended = run({"bench", "all_reduce", "-n", "1", "--memory", "private", "--sizes", "1T", "--rounds", "1"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("Limit: the system gives rank 0 no 1 TiB of memory for a buffer"));
}

TEST(BenchCommand, MistakesGetTheNearestNameAndExitCode2) {
  const auto mistake = [](std::vector<std::string> arguments, const std::string& words) {
    arguments.insert(arguments.begin(), "bench");
    const Ended ended = run(arguments);
    EXPECT_EQ(ended.code, 2) << words;
    EXPECT_THAT(ended.err, HasSubstr(words));
    EXPECT_EQ(ended.out, "");
  };
  mistake({}, "no operation given. Usage: tutti bench OP [OPTIONS]");
  mistake({"all_redcue", "-n", "2"}, "did you mean all_reduce?");
  mistake({"all_reduce", "-n", "2", "--jsno"}, "did you mean --json?");
  mistake({"all_reduce", "-n", "zero"}, "-n needs a number from 1 to 4096, not 'zero'");
  mistake({"all_reduce", "-n", "2", "--dtype", "fp32"}, "did you mean f32?");
  mistake({"all_reduce", "-n", "2", "--op", "band"}, "the operation band is for integers and bool, not for f32");
  mistake({"all_reduce", "-n", "2", "--max", "lots"}, "--max needs a size");
  mistake({"all_reduce", "-n", "2", "--min", "1M", "--max", "1K"}, "--max needs a size from 1048576 bytes to 1 TiB");
  mistake({"all_reduce", "-n", "2", "--algorithm", "rign"}, "did you mean ring?");
  mistake({"barrier", "-n", "2", "--algorithm", "ring"}, "there is no ring for barrier");
  mistake({"all_reduce", "-n", "2", "--json", "--min", "3", "--max", "3"},
          "--min: 3 bytes are no whole number of f32, of 4 bytes each\nhint: 4, for example");
  mistake({"all_reduce", "-n", "2", "--sizes", "7"}, "--sizes: 7 bytes are no whole number of f32, of 4 bytes each");
  mistake({"all_reduce", "-n", "2", "--sizes", ""}, "--sizes: an empty value");
  mistake({"all_reduce", "-n", "2", "--engine", ""}, "--engine: an empty value");
  mistake({"broadcast", "-n", "2", "--op", "min"}, "broadcast adds nothing up\nhint: drop --op min");
  mistake({"barrier,broadcast_bytes", "-n", "2", "--dtype", "f64"}, "has no elements\nhint: drop --dtype f64");
  mistake({"barrier", "-n", "2", "--sizes", "8"}, "barrier has no bytes\nhint: drop --sizes");
  mistake({"all_reduce", "-n", "2", "--engine", "gloo", "--algorithm", "ring"},
          "--algorithm ring is for the engine tutti, and the bytes are moved by gloo");
  mistake({"all_reduce", "-n", "2", "--engine", "mpi", "--transport", "shm"},
          "--transport shm is for the engine tutti, and the bytes are moved by mpi");
  mistake({"all_reduce", "-n", "2", "--engine", "nccl", "--memory", "cuda", "--algorithm", "ring"}, "moved by nccl");
  mistake({"all_reduce", "-n", "2", "--pin", "--no-pin"}, "contradict");
  mistake({"all_reduce", "-n", "2", "--sizes", "8,x"}, "--sizes needs a size");
  mistake({"all_reduce", "-n", "2", "--engine", "glo"}, "did you mean gloo?");
  mistake({"all_reduce", "-n", "2", "--engine", "nccl"}, "it goes with --memory cuda");
  mistake({"all_reduce", "-n", "2", "--memory", "cuda", "--rewrite"}, "--rewrite is for memory of the host");
  mistake({"all_reduce", "--peers", "--memory", "cuda"}, "--peers and --plot measure memory of the host");
  mistake({"all_reduce", "-n", "3", "--groups", "pairs"}, "--groups pairs cannot divide 3 ranks evenly");
  mistake({"all_reduce", "-n", "3", "--two-hosts"}, "--two-hosts needs an even number of ranks, not 3");
  mistake({"all_reduce", "-n", "2", "--congestion", "bbr"}, "--congestion goes with --two-hosts --peers");
  mistake({"all_reduce", "-n", "2", "--only", "8 B"}, "--only chooses lines of the table");
  mistake({"all_reduce", "-n", "2", "--against", "gloo", "--plot", "a.svg"}, "--against goes with --peers");
  mistake({"all_reduce", "-n", "2", "--against", "gloo"}, "--against goes with --peers");
  mistake({"all_reduce", "-n", "2", "--turns", "3"}, "--turns goes with --peers or --plot");
  mistake({"all_reduce", "--peers", "--against", "glo"}, "did you mean gloo?");
  mistake({"all", "--peers"}, "--peers and --plot take one operation at a time");
  mistake({"all_reduce", "--peers", "--dtype", "bf16"}, "the peers measure sums of f32 in one group of all ranks");
  mistake({"--peers", "-n", "2"}, "the table of targets sets its own");
  mistake({"--peers", "--plot", "a.svg"}, "--plot draws one operation");
  mistake({"--peers", "--only", "no such line"}, "no line of the table holds 'no such line'");
  mistake({"all_reduce", "-n", "2", "--plot", "a.gif"}, "ends in .svg or .png");
}

}  // namespace
}  // namespace tutti
