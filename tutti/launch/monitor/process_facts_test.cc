#include "tutti/launch/monitor/process_facts.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace tutti {
namespace {

TEST(ProcessFacts, AreReadFromStatus) {
  const ProcessFacts facts = parse_process_status(
      "Name:\tState: R\nState:\tT (stopped)\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\nSigIgn:\t0000000000000000\n"
      "SigCgt:\t0000000000000800\n");
  EXPECT_EQ(facts.state, 'T');
  EXPECT_TRUE(facts.is_suspended());
  EXPECT_EQ(facts.resident, 1024u * 1024);
  EXPECT_EQ(facts.most_resident, 2048u * 1024);
  EXPECT_TRUE(facts.catches_usr2);
}

TEST(ProcessFacts, OfThisProcessAndOfNone) {
  const ProcessFacts own = process_facts(::getpid());
  EXPECT_EQ(own.state, 'R');
  EXPECT_GT(own.resident, 0u);
  EXPECT_FALSE(own.catches_usr2);
  EXPECT_EQ(process_facts(0x7fffffff).state, '?');
  EXPECT_THAT(kernel_waits(::getpid()), testing::Not(testing::IsEmpty()));
}

class Cgroup : public testing::Test {
 protected:
  Cgroup() {
    std::string pattern = std::filesystem::temp_directory_path().string() + "/tutti_XXXXXX";
    root_ = ::mkdtemp(pattern.data());
  }
  ~Cgroup() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_;
};

TEST_F(Cgroup, OfVersion2HasTheNearestLimit) {
  put("/memory.max", "max\n");
  put("/job/memory.max", "4096\n");
  put("/job/memory.current", "4000\n");
  put("/job/memory.peak", "4090\n");
  put("/job/step/memory.max", "max\n");
  put("/job/step/memory.events", "low 0\noom_kill 2\n");
  const MemoryFacts facts = memory_facts("0::/job/step\n", root_);
  EXPECT_EQ(facts.limit, 4096u);
  EXPECT_EQ(facts.used, 4000u);
  EXPECT_EQ(facts.most_used, 4090u);
  EXPECT_EQ(facts.kills, 2);
}

TEST_F(Cgroup, OfVersion1) {
  put("/memory/job/memory.limit_in_bytes", "8192\n");
  put("/memory/job/memory.usage_in_bytes", "8000\n");
  put("/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const MemoryFacts facts = memory_facts("5:memory:/job\n", root_);
  EXPECT_EQ(facts.limit, 8192u);
  EXPECT_EQ(facts.used, 8000u);
  EXPECT_EQ(memory_facts("5:memory:/\n", root_).limit, 0u);
}

}  // namespace
}  // namespace tutti
