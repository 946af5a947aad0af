#include "tutti/base/cores.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

namespace tutti {
namespace {

class Cgroups : public ::testing::Test {
 protected:
  Cgroups() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tutti_cgroup_XXXXXX").string();
    mount_ = mkdtemp(pattern.data());
  }
  ~Cgroups() override { std::filesystem::remove_all(mount_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(mount_ + path).parent_path());
    std::ofstream(mount_ + path) << text;
  }
  std::string mount_;
};

TEST_F(Cgroups, UnifiedQuotaOfAnyAncestorCounts) {
  write("/a/cpu.max", "150000 100000\n");
  write("/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cgroup_cores("0::/a/b\n", mount_), 2);  // a core and a half: two threads can use it
  write("/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(cgroup_cores("0::/a/b\n", mount_), 1);
  EXPECT_EQ(cgroup_cores("0::/\n", mount_), std::nullopt);
}

TEST_F(Cgroups, FirstVersionAndContainersWithoutANamespace) {
  write("/cpu/cpu.cfs_quota_us", "300000\n");
  write("/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cgroup_cores("3:cpu,cpuacct:/docker/0123\n0::/\n", mount_), 3);
  write("/cpu/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cgroup_cores("3:cpu,cpuacct:/docker/0123\n0::/\n", mount_), std::nullopt);
  EXPECT_EQ(cgroup_cores("no such format\n::\n", mount_), std::nullopt);
}

TEST(UsableCores, AreAtLeastOne) { EXPECT_GE(usable_cores(), 1); }

TEST(UsableCores, AreNoMoreThanTheMaskLets) {
  std::thread([] {  // a mask of its own
    cpu_set_t before, one;
    ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
    int core = 0;
    while (!CPU_ISSET(core, &before)) ++core;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    EXPECT_EQ(usable_cores(), 1);
  })
      .join();
}

}  // namespace
}  // namespace tutti
