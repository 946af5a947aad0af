#include "tutti/doctor/host_info.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

namespace tutti::doctor {
namespace {

// A folder for one test.
class Files : public ::testing::Test {
 protected:
  Files() {
    std::string pattern = std::filesystem::temp_directory_path() / "tutti-doctor-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
  }
  ~Files() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text;
  }
  std::string root_;
};

TEST_F(Files, LimitsOfCgroupsAreTheSmallestOnTheWayUp) {
  const auto memory = [&](const std::string& self) {
    return cgroup_number(self, root_, "memory", "memory.limit_in_bytes", "memory.max");
  };
  write("memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");  // no limit
  write("memory/a/memory.limit_in_bytes", "4096\n");
  EXPECT_EQ(memory("3:memory:/a/b\n"), 4096u);
  write("a/memory.max", "max\n");
  EXPECT_EQ(memory("0::/a\n"), std::nullopt);
  write("a/memory.max", "8192\n");
  EXPECT_EQ(memory("0::/a\n"), 8192u);
  EXPECT_EQ(memory("0::/not/shown/here\n"), std::nullopt);
  write("memory.max", "100\n");  // a container sees its own group as the root
  EXPECT_EQ(memory("0::/not/shown/here\n"), 100u);
  EXPECT_EQ(memory("broken"), std::nullopt);
}

TEST(Meminfo, IsRead) {
  EXPECT_EQ(meminfo_bytes("MemTotal:       24000 kB\nMemAvailable:   100 kB\n", "MemAvailable"), 102400u);
  EXPECT_EQ(meminfo_bytes("MemTotal:       24000 kB\n", "MemAvailable"), 0u);
}

}  // namespace
}  // namespace tutti::doctor
