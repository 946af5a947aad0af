#include "tutti/launch/affinity/gpu_nodes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tutti/launch/affinity/shares.h"

namespace tutti::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

// A /proc, /sys and /dev of one's own.
class FakeGpus : public ::testing::Test {
 protected:
  FakeGpus() {
    root_ = std::filesystem::temp_directory_path() / "tutti_gpus_XXXXXX";
    EXPECT_NE(mkdtemp(root_.data()), nullptr);
    std::filesystem::create_directories(root_ + "/dev");
  }
  ~FakeGpus() override { std::filesystem::remove_all(root_); }

  void add_gpu(const std::string& address, int minor, const std::string& uuid, int node) {
    const std::string description = root_ + "/proc/driver/nvidia/gpus/" + address;
    const std::string device = root_ + "/sys/bus/pci/devices/" + address;
    std::filesystem::create_directories(description);
    std::filesystem::create_directories(device);
    std::ofstream(description + "/information")
        << "Model: \t\t NVIDIA H200\nGPU UUID: \t " << uuid << "\nBus Location: \t " << address << "\nDevice Minor: \t "
        << minor << "\n";
    std::ofstream(device + "/numa_node") << node << "\n";
    std::ofstream(root_ + "/dev/nvidia" + std::to_string(minor)) << "";
  }

  std::string root_;
};

TEST_F(FakeGpus, NumbersCountInTheOrderOfThePciBus) {
  add_gpu("0000:9a:00.0", 0, "GPU-aa01", 1);
  add_gpu("0000:17:00.0", 1, "GPU-bb02", 0);
  EXPECT_THAT(numa_nodes_of_gpus({"0", "1"}, root_), UnorderedElementsAre(Pair("0", 0), Pair("1", 1)));
}

TEST_F(FakeGpus, UuidsMayBeCutShortIfOneGpuHasThem) {
  add_gpu("0000:17:00.0", 0, "GPU-aa01", 2);
  add_gpu("0000:9a:00.0", 1, "GPU-ab02", 3);
  EXPECT_THAT(numa_nodes_of_gpus({"GPU-ab02", "GPU-aa", "GPU-a", "GPU-c", "MIG-aa"}, root_),
              UnorderedElementsAre(Pair("GPU-ab02", 3), Pair("GPU-aa", 2)));
}

TEST_F(FakeGpus, ThoseWithoutADeviceFileDoNotCount) {
  add_gpu("0000:17:00.0", 0, "GPU-aa01", 0);
  add_gpu("0000:9a:00.0", 1, "GPU-bb02", 1);
  std::filesystem::remove(root_ + "/dev/nvidia0");
  EXPECT_THAT(numa_nodes_of_gpus({"0", "1"}, root_), ElementsAre(Pair("0", 1)));
}

TEST_F(FakeGpus, ANodeThatTheFirmwareDoesNotNameIsUnknown) {
  add_gpu("0000:17:00.0", 0, "GPU-aa01", -1);
  EXPECT_THAT(numa_nodes_of_gpus({"0"}, root_), IsEmpty());
  EXPECT_THAT(numa_nodes_of_gpus({"0"}, root_ + "/nothing"), IsEmpty());
}

// Two sockets of two NUMA nodes of two cores.
Topology eight_cores() {
  Topology topology;
  for (int core = 0; core < 8; ++core) topology.push_back({.cpus = {core}, .socket = core / 4, .numa = core / 2});
  return topology;
}

TEST(NodesOfRanks, RanksTakeTheGpusInTurn) {
  EXPECT_THAT(nodes_of_ranks({"4", "5"}, {{"4", 3}, {"5", 0}}, eight_cores(), 3), ElementsAre(3, 0, 3));
}

TEST(NodesOfRanks, OneThatIsUnknownLeavesAllOut) {
  EXPECT_THAT(nodes_of_ranks({"4", "5"}, {{"4", 3}}, eight_cores(), 2), IsEmpty());
  EXPECT_THAT(nodes_of_ranks({"4", "5"}, {{"4", 3}}, eight_cores(), 1), ElementsAre(3));
  EXPECT_THAT(nodes_of_ranks({"4"}, {{"4", 7}}, eight_cores(), 1), IsEmpty()) << "no core of node 7 may be used";
  EXPECT_THAT(nodes_of_ranks({}, {}, eight_cores(), 2), IsEmpty());
}

TEST(BindNearGpus, RanksDivideTheCoresOfTheNodesOfTheirGpus) {
  EXPECT_THAT(bind_ranks(eight_cores(), Bind::kCore, 4, {3, 3, 0, 0}),
              ElementsAre(ElementsAre(6), ElementsAre(7), ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(bind_ranks(eight_cores(), Bind::kCore, 2, {1, 0}), ElementsAre(ElementsAre(2, 3), ElementsAre(0, 1)));
  EXPECT_THAT(bind_ranks(eight_cores(), Bind::kCore, 3, {2, 2, 2}),
              ElementsAre(ElementsAre(4), ElementsAre(4), ElementsAre(5)));
}

TEST(BindNearGpus, ARankMayUseAllOfTheNodeOrSocketOfItsGpu) {
  EXPECT_THAT(bind_ranks(eight_cores(), Bind::kNuma, 2, {3, 1}), ElementsAre(ElementsAre(6, 7), ElementsAre(2, 3)));
  EXPECT_THAT(bind_ranks(eight_cores(), Bind::kSocket, 2, {3, 1}),
              ElementsAre(ElementsAre(4, 5, 6, 7), ElementsAre(0, 1, 2, 3)));
  EXPECT_THAT(bind_ranks(eight_cores(), Bind::kNone, 1, {3}), ElementsAre(IsEmpty()));
}

TEST(BindNearGpus, ThreadsAreForTheCoresOfTheFullestNode) {
  EXPECT_EQ(cores_of_a_rank(eight_cores(), Bind::kCore, 2, {1, 0}), 2);
  EXPECT_EQ(cores_of_a_rank(eight_cores(), Bind::kCore, 3, {1, 1, 0}), 1);
  EXPECT_EQ(cores_of_a_rank(eight_cores(), Bind::kNuma, 3, {2, 2, 2}), 1);
  EXPECT_EQ(cores_of_a_rank(eight_cores(), Bind::kSocket, 2, {3, 2}), 2);
}

TEST(BindNearGpus, SharesHaveTheCoresAndTheGpu) {
  const auto shares = share_out({.bind = Bind::kNuma}, eight_cores(), {"0", "1"}, 2, {3, 0});
  ASSERT_TRUE(shares.ok());
  EXPECT_EQ((*shares)[0].text(), "CPU 6, 7, GPU 0");
  EXPECT_EQ((*shares)[1].text(), "CPU 0, 1, GPU 1");
}

}  // namespace
}  // namespace tutti::launch
