#include "tutti/launch/process.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>

namespace tutti::launch {
namespace {

using testing::HasSubstr;

// A write lease on the program: the kernel lets nobody open it, execve() included, until the holder lets go. To the
// launcher it looks like a file on a mount that does not answer.
class LeasedProgram {
 public:
  LeasedProgram() {
    std::string pattern = std::filesystem::temp_directory_path() / "tutti-process-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    path_ = folder_ + "/program";
    std::filesystem::copy_file("/bin/true", path_);
    ::signal(SIGIO, SIG_IGN);  // the kernel's request to let go
    fd_ = Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));
    held_ = ::fcntl(fd_.get(), F_SETLEASE, F_WRLCK) == 0;
  }
  ~LeasedProgram() {
    (void)::fcntl(fd_.get(), F_SETLEASE, F_UNLCK);
    ::signal(SIGIO, SIG_DFL);
    std::filesystem::remove_all(folder_);
  }
  int fd() const { return fd_.get(); }
  bool held() const { return held_; }
  const std::string& path() const { return path_; }

 private:
  std::string folder_, path_;
  Fd fd_;
  bool held_ = false;
};

TEST(StartProcess, AFileSystemThatDoesNotAnswerIsATimeout) {
  LeasedProgram program;
  if (!program.held()) GTEST_SKIP() << "no leases on the file system of the temporary folder";
  const ProcessSpec spec{.path = program.path(), .arguments = {"program"}, .patience = std::chrono::milliseconds(100)};
  const auto started = start_process(spec);
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, Code::kTimeout);
  EXPECT_THAT(to_string(started.error()), HasSubstr("the kernel has not started '" + program.path() + "' after "));
  int status = 0;
  ASSERT_GT(::waitpid(-1, &status, 0), 0) << "the child is left to be reaped";
  EXPECT_EQ(exit_of(status).signal, SIGKILL);
}

int leased = -1;

TEST(StartProcess, OneThatAnswersLateIsStarted) {
  LeasedProgram program;
  if (!program.held()) GTEST_SKIP() << "no leases on the file system of the temporary folder";
  leased = program.fd();
  ::signal(SIGIO, [](int) { (void)::fcntl(leased, F_SETLEASE, F_UNLCK); });  // while start_process() waits
  const auto started = start_process({.path = program.path(), .arguments = {"program"}});
  ASSERT_TRUE(started.ok()) << to_string(started.error());
  int status = 0;
  ASSERT_EQ(::waitpid(started->pid, &status, 0), started->pid);
  EXPECT_TRUE(exit_of(status).ok());
}

TEST(StartProcess, AFailedExecveIsAnErrorAtOnce) {
  const auto started = start_process({.path = "/nowhere/at/all", .arguments = {"all"}});
  ASSERT_FALSE(started.ok());
  EXPECT_EQ(started.error().code, Code::kUsage);
  EXPECT_THAT(to_string(started.error()), HasSubstr("could not execute '/nowhere/at/all': No such file"));
}

}  // namespace
}  // namespace tutti::launch
