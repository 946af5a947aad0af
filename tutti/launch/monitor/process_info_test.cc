#include "tutti/launch/monitor/process_info.h"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace tutti::launch {
namespace {

TEST(ProcessInfo, IsReadFromStatus) {
  const ProcessInfo info = parse_process_status(
      "Name:\tState: R\nState:\tT (stopped)\nVmHWM:\t  2048 kB\nVmRSS:\t  1024 kB\nSigIgn:\t0000000000000000\n"
      "SigCgt:\t0000000000000800\n");
  EXPECT_EQ(info.state, 'T');
  EXPECT_EQ(info.resident, 1024u * 1024);
  EXPECT_EQ(info.most_resident, 2048u * 1024);
  EXPECT_TRUE(info.handles(SIGUSR2));
}

TEST(ProcessInfo, OfThisProcessAndOfNone) {
  const ProcessInfo own = process_info(::getpid());
  EXPECT_EQ(own.state, 'R');
  EXPECT_GT(own.resident, 0u);
  EXPECT_FALSE(own.handles(SIGUSR2));
  EXPECT_EQ(process_info(0x7fffffff).state, '?');
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
  const CgroupMemory memory = cgroup_memory("0::/job/step\n", root_);
  EXPECT_EQ(memory.limit, 4096u);
  EXPECT_EQ(memory.used, 4000u);
  EXPECT_EQ(memory.most_used, 4090u);
  EXPECT_EQ(memory.kills, 2);
}

TEST_F(Cgroup, OfVersion1) {
  put("/memory/job/memory.limit_in_bytes", "8192\n");
  put("/memory/job/memory.usage_in_bytes", "8000\n");
  put("/memory/memory.limit_in_bytes", "9223372036854771712\n");
  const CgroupMemory memory = cgroup_memory("5:memory:/job\n", root_);
  EXPECT_EQ(memory.limit, 8192u);
  EXPECT_EQ(memory.used, 8000u);
  EXPECT_EQ(cgroup_memory("5:memory:/\n", root_).limit, 0u);
}

TEST_F(Cgroup, OutOfMemoryKillsAreThoseOfTheGroupItself) {
  put("/memory.events", "low 0\nhigh 0\nmax 4\noom 2\noom_kill 3\n");
  put("/memory/x/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 5\n");
  EXPECT_EQ(out_of_memory_kills("0::/\n", root_), 3);
  EXPECT_EQ(out_of_memory_kills("0::/job\n", root_), 0) << "not its parents";
  EXPECT_EQ(out_of_memory_kills("4:memory:/x\n", root_), 5);
  EXPECT_EQ(out_of_memory_kills("4:memory:/y\n", root_), 0);
}

TEST(ProcessorTime, IsReadBehindWhateverNameTheProgramHas) {
  EXPECT_EQ(parse_processor_seconds("7 (a) R b) S 1 7 7 0 -1 4194560 10 0 0 0 150 50 0 0 20 0 1 0", 100), 2.0);
  EXPECT_EQ(parse_processor_seconds("", 100), 0.0);
  while (processor_seconds(::getpid()) == 0) {
  }
  EXPECT_EQ(processor_seconds(-1), 0.0);
}

}  // namespace
}  // namespace tutti::launch
