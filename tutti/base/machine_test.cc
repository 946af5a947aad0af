#include "tutti/base/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tutti/base/machine.h"

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
  EXPECT_EQ(cgroup_cores("0::/a/b\n", mount_), 2);  // one and a half cores: two threads can use them
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
  std::thread([] {  // which gets its own mask
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

namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Gpus, TheVariableIsParsedLikeInCuda) {
  const auto gpus = [](const char* text) { return visible_gpus({{"CUDA_VISIBLE_DEVICES", text}}); };
  EXPECT_THAT(gpus("2,0"), ElementsAre("2", "0"));
  EXPECT_THAT(gpus(" GPU-8f2a , 1"), ElementsAre("GPU-8f2a", "1"));
  EXPECT_THAT(gpus("3,-1,4"), ElementsAre("3"));
  EXPECT_THAT(gpus(""), IsEmpty());
  EXPECT_THAT(gpus("-1"), IsEmpty());
}

TEST(Gpus, DeviceFilesCountIfTheVariableIsNotSet) {
  std::string folder = std::filesystem::temp_directory_path() / "tutti_gpus_XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  EXPECT_THAT(visible_gpus({}, folder), IsEmpty());
  for (const char* name : {"nvidia0", "nvidia5", "nvidiactl", "nvidia-uvm"}) std::ofstream(folder + "/" + name);
  EXPECT_THAT(visible_gpus({}, folder), ElementsAre("0", "1"));
  std::filesystem::remove_all(folder);
}

}  // namespace

namespace {

TEST(ProcessState, ReportsAProcessThatIsStoppedAndContinued) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::prctl(PR_SET_NAME, "a) T b");  // looks like the state of a stopped process
    ::raise(SIGSTOP);
    for (;;) ::pause();
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
  ASSERT_TRUE(WIFSTOPPED(status));
  EXPECT_TRUE(is_suspended(child));
  ::kill(child, SIGCONT);
  ASSERT_EQ(::waitpid(child, &status, WCONTINUED), child);
  EXPECT_FALSE(is_suspended(child));
  ::kill(child, SIGKILL);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_FALSE(is_suspended(child)) << "there is none";
  EXPECT_FALSE(is_suspended(::getpid()));
}

// So a job's report does not say that ranks were stopped whose stacks `tutti run` was reading.
TEST(ProcessState, ADebuggerOfOneOwnDoesNotCount) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    char byte = '!';
    (void)!::write(ready[1], &byte, 1);
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const pid_t debugger = ::fork();
  if (debugger == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    const bool holds =
        ::ptrace(PTRACE_ATTACH, child, nullptr, nullptr) == 0 && ::waitpid(child, nullptr, __WALL) == child;
    byte = holds ? '!' : '?';
    (void)!::write(ready[1], &byte, 1);
    for (;;) ::pause();
  }
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  const bool holds = byte == '!';
  EXPECT_FALSE(is_suspended(child));
  const pid_t another = ::fork();
  if (another == 0) ::_exit(is_suspended(child));
  int status = 0;
  ASSERT_EQ(::waitpid(another, &status, 0), another);
  for (const pid_t pid : {debugger, child}) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
  for (const int end : ready) ::close(end);
  if (!holds) GTEST_SKIP() << "no process may hold another one here (kernel.yama.ptrace_scope)";
  EXPECT_EQ(WEXITSTATUS(status), 1) << "for other processes it does";
}

// A leak checker stops its process like this.
TEST(ProcessState, ADebuggerThatTheProcessStartedDoesNotCount) {
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY);
    const pid_t self = ::getpid();
    if (::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const bool holds =
          ::ptrace(PTRACE_ATTACH, self, nullptr, nullptr) == 0 && ::waitpid(self, nullptr, __WALL) == self;
      const char byte = holds ? '!' : '?';
      (void)!::write(ready[1], &byte, 1);
    }
    for (;;) ::pause();
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_FALSE(is_suspended(child));
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  for (const int end : ready) ::close(end);
  if (byte != '!') GTEST_SKIP() << "no process may hold another one here (kernel.yama.ptrace_scope)";
}

}  // namespace

}  // namespace tutti
