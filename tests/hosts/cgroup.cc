#include "tests/hosts/cgroup.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tutti/base/deadline.h"

namespace tutti::testing {

Result<std::unique_ptr<Cgroup>> Cgroup::make(const std::string& controller) {
  static std::atomic<int> number{0};
  const std::string root = "/sys/fs/cgroup/" + controller;
  if (::geteuid() != 0) return Error{.code = Code::kUnsupported, .detail = "control groups need root"};
  if (!std::filesystem::exists(root + "/cgroup.procs") || !std::filesystem::exists(root + "/tasks"))
    return Error{.code = Code::kUnsupported, .detail = "no " + controller + " controller (v1) below /sys/fs/cgroup"};
  const std::string folder = root + "/tutti-test-" + std::to_string(::getpid()) + "-" + std::to_string(number++);
  if (::mkdir(folder.c_str(), 0755) != 0) return system_error(errno, "cannot make " + folder);
  return std::unique_ptr<Cgroup>(new Cgroup(folder));
}

Cgroup::~Cgroup() {
  if (std::filesystem::exists(folder_ + "/freezer.state")) (void)set("freezer.state", "THAWED");
  const Deadline deadline = Deadline::after(std::chrono::seconds(20));
  while (::rmdir(folder_.c_str()) != 0 && errno == EBUSY && !deadline.expired()) {
    std::ifstream members(folder_ + "/cgroup.procs");
    for (pid_t pid = 0; members >> pid;)
      if (pid > 1) ::kill(pid, SIGKILL);
    ::poll(nullptr, 0, 1);
  }
}

Status Cgroup::set(const std::string& file, const std::string& value) const {
  std::ofstream out(folder_ + "/" + file);
  out << value << std::flush;
  return out ? Status() : system_error(errno, "cannot write " + value + " into " + folder_ + "/" + file);
}

std::vector<std::string> Cgroup::entering() const {
  return {"/bin/sh", "-c", "echo $$ > '" + folder_ + "/cgroup.procs' && exec \"$@\"", "sh"};
}

}  // namespace tutti::testing
