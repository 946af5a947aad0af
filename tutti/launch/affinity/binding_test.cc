#include "tutti/launch/affinity/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

// Two sockets of two NUMA nodes of two cores of two hardware threads: core c has the threads c and c + 8.
Topology big() {
  Topology topology;
  for (int core = 0; core < 8; ++core)
    topology.push_back({.cpus = {core, core + 8}, .socket = core / 4, .numa = core / 2});
  return topology;
}

TEST(Bind, TheWordsAreFourAndOthersAreNamed) {
  EXPECT_EQ(*parse_bind("core"), Bind::kCore);
  EXPECT_EQ(*parse_bind("none"), Bind::kNone);
  const auto wrong = parse_bind("cores");
  EXPECT_EQ(wrong.error().code, Code::kUsage);
  EXPECT_EQ(wrong.error().detail, "--bind needs core, socket, numa or none, not 'cores'");
}

TEST(Bind, CoresAreCutIntoRunsOfNeighbours) {
  EXPECT_THAT(bind_ranks(big(), Bind::kCore, 4), ElementsAre(ElementsAre(0, 1, 8, 9), ElementsAre(2, 3, 10, 11),
                                                             ElementsAre(4, 5, 12, 13), ElementsAre(6, 7, 14, 15)));
  // Every core belongs to one rank, and the runs differ by one core at most.
  const auto three = bind_ranks(big(), Bind::kCore, 3);
  EXPECT_THAT(three,
              ElementsAre(ElementsAre(0, 1, 8, 9), ElementsAre(2, 3, 4, 10, 11, 12), ElementsAre(5, 6, 7, 13, 14, 15)));
}

TEST(Bind, FewerCoresThanRanksAreShared) {
  const Topology two = {{.cpus = {0}}, {.cpus = {1}}};
  EXPECT_THAT(bind_ranks(two, Bind::kCore, 5),
              ElementsAre(ElementsAre(0), ElementsAre(0), ElementsAre(0), ElementsAre(1), ElementsAre(1)));
}

TEST(Bind, SocketsAndNumaNodesAreDealtInRuns) {
  const auto sockets = bind_ranks(big(), Bind::kSocket, 4);
  EXPECT_EQ(sockets[0], sockets[1]);
  EXPECT_THAT(sockets[0], ElementsAre(0, 1, 2, 3, 8, 9, 10, 11));
  EXPECT_THAT(sockets[2], ElementsAre(4, 5, 6, 7, 12, 13, 14, 15));
  EXPECT_THAT(bind_ranks(big(), Bind::kNuma, 2), ElementsAre(ElementsAre(0, 1, 8, 9), ElementsAre(4, 5, 12, 13)));
}

TEST(Bind, NoneLeavesEveryRankAsItIs) { EXPECT_THAT(bind_ranks({}, Bind::kNone, 3), Each(IsEmpty())); }

TEST(Bind, ThreadsAreForTheCoresOfTheFullestPlace) {
  EXPECT_EQ(cores_of_a_rank(big(), Bind::kCore, 4), 2);
  EXPECT_EQ(cores_of_a_rank(big(), Bind::kCore, 3), 2);
  EXPECT_EQ(cores_of_a_rank(big(), Bind::kCore, 20), 1);
  EXPECT_EQ(cores_of_a_rank(big(), Bind::kSocket, 1), 4);
  EXPECT_EQ(cores_of_a_rank(big(), Bind::kSocket, 3), 2);
  EXPECT_EQ(cores_of_a_rank(big(), Bind::kNuma, 4), 2);
}

}  // namespace
}  // namespace tutti
