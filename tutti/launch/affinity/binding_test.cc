#include "tutti/launch/affinity/binding.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tutti::launch {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
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

TEST(Bind, CoresAreDividedIntoContiguousRuns) {
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

// A /sys of one's own: CPU 0 and 2 are the threads of core 0 of socket 0, CPU 1 and 3 of core 0 of socket 1.
class FakeSys : public ::testing::Test {
 protected:
  FakeSys() {
    folder_ = std::filesystem::temp_directory_path() / "tutti_sys_XXXXXX";
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    for (int cpu = 0; cpu < 4; ++cpu) {
      const std::string base = folder_ + "/devices/system/cpu/cpu" + std::to_string(cpu);
      std::filesystem::create_directories(base + "/topology");
      std::filesystem::create_directories(base + "/node" + std::to_string(cpu % 2));
      std::ofstream(base + "/topology/core_id") << "0\n";
      std::ofstream(base + "/topology/physical_package_id") << cpu % 2 << "\n";
    }
  }
  ~FakeSys() override { std::filesystem::remove_all(folder_); }
  std::string folder_;
};

TEST_F(FakeSys, ACoreIsNamedBySocketAndNumber) {
  const auto topology = topology_from_sys({0b1111}, folder_);
  ASSERT_TRUE(topology.ok());
  EXPECT_THAT(*topology,
              ElementsAre(Core{.cpus = {0, 2}, .socket = 0, .numa = 0}, Core{.cpus = {1, 3}, .socket = 1, .numa = 1}));
}

TEST_F(FakeSys, OnlyWhatIsAllowedCounts) {
  EXPECT_THAT(*topology_from_sys({0b1000}, folder_), ElementsAre(Core{.cpus = {3}, .socket = 1, .numa = 1}));
  EXPECT_THAT(topology_from_sys({0}, folder_).error().detail, HasSubstr("may not run on any core"));
}

TEST(Topology, OfThisHostHasEveryCpuThatWeMayUse) {
  const auto topology = topology_from_sys(allowed_cores());
  ASSERT_TRUE(topology.ok());
  std::vector<int> cpus;
  for (const Core& core : *topology) cpus.insert(cpus.end(), core.cpus.begin(), core.cpus.end());
  EXPECT_EQ(count_of(mask_of(cpus)), count_of(allowed_cores()));
  EXPECT_EQ(int(cpus.size()), count_of(allowed_cores()));
}

#ifdef TUTTI_HWLOC
TEST(Hwloc, ReadsAMachineThatIsDescribed) {
  setenv("HWLOC_SYNTHETIC", "package:2 numa:1 core:2 pu:2", 1);
  const auto topology = topology_from_hwloc({0xff});
  const auto cut = topology_from_hwloc({0b11000000});
  unsetenv("HWLOC_SYNTHETIC");
  ASSERT_TRUE(topology.ok());
  EXPECT_THAT(*topology, ElementsAre(Core{{0, 1}, 0, 0}, Core{{2, 3}, 0, 0}, Core{{4, 5}, 1, 1}, Core{{6, 7}, 1, 1}));
  EXPECT_THAT(*cut, ElementsAre(Core{{6, 7}, 1, 1}));
  EXPECT_THAT(bind_ranks(*topology, Bind::kSocket, 2), ElementsAre(ElementsAre(0, 1, 2, 3), ElementsAre(4, 5, 6, 7)));
}

TEST(Hwloc, RanksAreBoundNearTheirGpus) {
  setenv("HWLOC_SYNTHETIC", "package:2 numa:2 core:2 pu:1", 1);
  const auto topology = topology_from_hwloc({0xff});
  unsetenv("HWLOC_SYNTHETIC");
  ASSERT_TRUE(topology.ok());
  EXPECT_THAT(bind_ranks(*topology, Bind::kCore, 3, {3, 0, 3}),
              ElementsAre(ElementsAre(6), ElementsAre(0, 1), ElementsAre(7)));
}

TEST(Hwloc, AgreesWithSysOnThisHost) {
  const auto ours = topology_from_sys(allowed_cores()), theirs = topology_from_hwloc(allowed_cores());
  ASSERT_TRUE(ours.ok() && theirs.ok());
  EXPECT_EQ(ours->size(), theirs->size());
}
#endif

}  // namespace
}  // namespace tutti::launch
