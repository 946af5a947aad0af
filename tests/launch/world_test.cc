// The whole way: `tutti run` starts ranks that join a world through the agent's store, and one of them dies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/launch/running.h"
#include "tutti/transport/socket.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(World, RanksMeetAndAddUp) {
  for (const int ranks : {1, 2, 3}) {
    const Ended ended = run({"run", "-n", std::to_string(ranks), TUTTI_TEST_WORLD, "once"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    for (int rank = 0; rank < ranks; ++rank) {
      const std::string mine = std::to_string(rank);
      EXPECT_THAT(ended.out, HasSubstr("[" + mine + "] rank " + mine + " of " + std::to_string(ranks) + ": sum " +
                                       std::to_string(ranks * (ranks + 1) / 2) + "\n"));
    }
  }
}

TEST(World, WithoutASecret) { EXPECT_EQ(run({"run", "-n", "2", "--insecure", TUTTI_TEST_WORLD, "once"}).code, 0); }

TEST(World, StaleVariablesDoNotConfuse) {
  const Ended ended = run({"run", "-n", "2", TUTTI_TEST_WORLD, "once"}, {{"RANK", "5"},
                                                                         {"WORLD_SIZE", "9"},
                                                                         {"MASTER_ADDR", "192.0.2.1"},
                                                                         {"OMPI_COMM_WORLD_RANK", "3"},
                                                                         {"SLURM_PROCID", "1"},
                                                                         {"SLURM_NTASKS", "8"},
                                                                         {"SLURM_JOB_ID", "4711"},
                                                                         {"TUTTI_STORE", "192.0.2.1:1"}});
  EXPECT_EQ(ended.code, 0) << ended.err;
}

TEST(World, TheOneThatDiesIsNamed) {
  const Ended ended = run({"run", "-n", "3", TUTTI_TEST_WORLD, "die", "1"});
  EXPECT_EQ(ended.code, 137);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("the job failed: rank 1 (pid "), HasSubstr("was killed by SIGKILL")));
  EXPECT_THAT(ended.out, HasSubstr("[1] rank 1 of 3: sum 6")) << "init() makes stdout line-buffered";
}

// Started by hand, with `env`, so as not to be given good variables.
TEST(World, AProgramWithoutATryEndsWithASentence) {
  const Ended ended = run({"run", "-q", "-n", "1", "--", "env", "-u", "RANK", "-u", "TUTTI_STORE", "WORLD_SIZE=2",
                           "TORCHELASTIC_RUN_ID=", TUTTI_TEST_WORLD, "careless"});
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("RANK is missing"), Not(HasSubstr("terminate called"))));
}

TEST(World, InitIsForOnce) {
  const Ended ended = run({"run", "-n", "2", TUTTI_TEST_WORLD, "twice"});
  EXPECT_EQ(ended.code, 1);
  EXPECT_THAT(ended.err, HasSubstr("init() was called already in this process, pid "));
}

TEST(World, TwoNodes) {
  const auto first_port = listen(transport::Address{.host = "127.0.0.1"}),
             second_port = listen(transport::Address{.host = "127.0.0.1"});
  const auto node = [&](const std::string& number, const std::string& ranks) {
    return std::vector<std::string>{"run",
                                    "--nnodes",
                                    "2",
                                    "--node-rank",
                                    number,
                                    "--master-addr",
                                    "127.0.0.1",
                                    "--master-port",
                                    std::to_string(second_port->address.port),
                                    "--store-port",
                                    std::to_string(first_port->address.port),
                                    "-n",
                                    ranks,
                                    TUTTI_TEST_WORLD,
                                    "once"};
  };
  const auto node0 = node("0", "2"), node1 = node("1", "1");
  const_cast<Fd&>(first_port->fd).reset();
  const_cast<Fd&>(second_port->fd).reset();
  Running first(node0, {{"TUTTI_SECRET", "x"}}), second(node1, {{"TUTTI_SECRET", "x"}});
  const Ended here = first.wait(), there = second.wait();
  EXPECT_EQ(here.code, 0) << here.err;
  EXPECT_EQ(there.code, 0) << there.err;
  EXPECT_THAT(here.out, HasSubstr("rank 1 of 3: sum 6"));
  EXPECT_THAT(there.out, HasSubstr("[2] rank 2 of 3: sum 6"));
}

}  // namespace
}  // namespace tutti::testing
