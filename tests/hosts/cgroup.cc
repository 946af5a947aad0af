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
namespace {

// v2: whether groups below the root have this controller, after asking for it.
bool hands_down(const std::string& mount, const std::string& controller) {
  const std::string file = mount + "/cgroup.subtree_control";
  std::ofstream(file) << "+" + controller << std::flush;
  std::ifstream has(file);
  for (std::string word; has >> word;)
    if (word == controller) return true;
  return false;
}

}  // namespace

Result<std::unique_ptr<Cgroup>> Cgroup::make(const std::string& controller) {
  static std::atomic<int> number{0};
  const std::string mount = "/sys/fs/cgroup";
  if (::geteuid() != 0) return Error{.code = Code::kUnsupported, .detail = "control groups need root"};
  const bool v1 = std::filesystem::exists(mount + "/" + controller + "/tasks");
  const std::string root = v1 ? mount + "/" + controller : mount;
  if (!v1 && !hands_down(mount, controller))
    return Error{
        .code = Code::kUnsupported,
        .detail = "no " + controller + " controller below " + mount + ", as v1 or v2, that this process may use"};
  const std::string folder = root + "/tutti-test-" + std::to_string(::getpid()) + "-" + std::to_string(number++);
  if (::mkdir(folder.c_str(), 0755) != 0) return system_error(errno, "cannot make " + folder);
  return std::unique_ptr<Cgroup>(new Cgroup(folder, !v1));
}

Status Cgroup::limit_memory(std::uint64_t bytes) const {
  TUTTI_TRY(set(v2_ ? "memory.max" : "memory.limit_in_bytes", std::to_string(bytes)));
  // What is swapped out does not count, and the limit would never be met.
  const std::string swap = v2_ ? "memory.swap.max" : "memory.memsw.limit_in_bytes";
  if (!std::filesystem::exists(folder_ + "/" + swap)) return {};
  return set(swap, v2_ ? "0" : std::to_string(bytes));
}

Status Cgroup::limit_processor(double cores) const {
  constexpr int kPeriod = 100000;  // microseconds
  const std::string quota = std::to_string(int(cores * kPeriod));
  if (v2_) return set("cpu.max", quota + " " + std::to_string(kPeriod));
  TUTTI_TRY(set("cpu.cfs_period_us", std::to_string(kPeriod)));
  return set("cpu.cfs_quota_us", quota);
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
