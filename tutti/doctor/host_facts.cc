// Where the system keeps each fact. Nothing here judges, and nothing fails: what cannot be read stays empty, because a
// doctor who gives up at the first locked door helps nobody.
//
// OpenBLAS chooses its kernels when it is loaded, starts threads, and may die of an instruction that a wrong
// OPENBLAS_CORETYPE promised. So it is loaded in a forked process, which says the name through a pipe.
#include "tutti/doctor/host_facts.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tutti/base/deadline.h"
#include "tutti/base/env.h"
#include "tutti/base/fd.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/doctor/devices.h"
#include "tutti/launch/process.h"
#include "tutti/rendezvous/reach_store.h"
#include "tutti/transport/address.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

constexpr auto kBlasLimit = std::chrono::seconds(10);  // to load it and ask: a slow disk

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// "NAME=value" or "name : value" in a file of such lines.
std::string value_in(const std::string& text, const std::string& key, char separator) {
  for (const std::string& line : split(text, '\n')) {
    const auto at = line.find(separator);
    if (at == std::string::npos || trim(line.substr(0, at)) != key) continue;
    std::string value(trim(line.substr(at + 1)));
    if (value.size() > 1 && value.front() == '"' && value.back() == '"') value = value.substr(1, value.size() - 2);
    return value;
  }
  return {};
}

SystemLimit limit_of(__rlimit_resource resource) {
  rlimit limit{};
  if (::getrlimit(resource, &limit) != 0) return {};
  const auto known = [](rlim_t value) {
    return value == RLIM_INFINITY ? std::nullopt : std::optional<std::uint64_t>(value);
  };
  return {known(limit.rlim_cur), known(limit.rlim_max)};
}

DiskFacts look_at_disk(const std::string& what, const std::string& path) {
  DiskFacts disk{.what = what, .path = path};
  fs::path there = path;  // the folder itself may be yet to be made
  std::error_code ignored;
  while (!fs::exists(there, ignored) && there.has_relative_path()) there = there.parent_path();
  if (there.empty()) there = ".";
  struct statvfs info {};
  if (::statvfs(there.c_str(), &info) == 0) {
    disk.free = std::uint64_t(info.f_bavail) * info.f_frsize;
    disk.total = std::uint64_t(info.f_blocks) * info.f_frsize;
  }
  std::string file = there / ".tutti-doctor-XXXXXX";
  const Fd made(::mkstemp(file.data()));
  if (made) {
    (void)::unlink(file.c_str());
  } else {
    disk.trouble = std::strerror(errno);
  }
  return disk;
}

// What an OpenBLAS that a program of LibTorch would load calls its kernels.
void ask_openblas(HostFacts& facts) {
  int ends[2];
  if (::pipe(ends) != 0) return;
  const Fd reading(ends[0]);
  Fd writing(ends[1]);
  const pid_t child = ::fork();
  if (child < 0) return;
  if (child == 0) {
    ::setenv("OPENBLAS_NUM_THREADS", "1", 1);
    std::string name = "none";
    for (const char* library : {"libopenblas.so.0", "libopenblas.so"}) {
      if (::dlopen(library, RTLD_NOW | RTLD_GLOBAL)) break;
    }
    if (const std::string core = loaded_openblas_core(); !core.empty()) name = core;
    if (::write(writing.get(), name.data(), name.size()) < 0) ::_exit(1);
    ::_exit(0);
  }
  writing.reset();
  std::string said;
  const Deadline deadline = Deadline::after(kBlasLimit);
  for (;;) {
    pollfd ready{reading.get(), POLLIN, 0};
    if (::poll(&ready, 1, deadline.poll_timeout_ms()) <= 0) {
      ::kill(child, SIGKILL);
      break;
    }
    char buffer[64];
    const ssize_t got = ::read(reading.get(), buffer, sizeof buffer);
    if (got <= 0) break;
    said.append(buffer, std::size_t(got));
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  const Exit exit = exit_of(status);
  if (!exit.ok()) {
    facts.openblas_trouble = to_string(exit);
  } else if (said != "none") {
    facts.openblas = said;
  }
}

std::optional<bool> clock_is_synchronised() {
  timex time{};
  const int state = ::adjtimex(&time);
  if (state < 0) return std::nullopt;
  return state != TIME_ERROR && !(time.status & STA_UNSYNC);
}

std::vector<std::string> meanings_of(const std::string& name) {
  std::vector<std::string> all;
  if (const auto found = resolve(Address{.host = name}); found.ok())
    for (const Address& address : *found) all.push_back(address.host);
  return all;
}

}  // namespace

std::optional<std::uint64_t> cgroup_number(const std::string& self_cgroup, const std::string& mount,
                                           const std::string& controller, const std::string& v1_file,
                                           const std::string& v2_file) {
  std::optional<std::uint64_t> least;
  // v1 writes "no limit" as a number of pages that no machine has.
  const auto consider = [&](const fs::path& file) {
    const auto number = parse_int(trim(text_of(file)));
    if (number && *number >= 0 && *number < (std::int64_t(1) << 60))
      least = std::min(std::uint64_t(*number), least.value_or(std::uint64_t(*number)));
  };
  for (const std::string& line : split(self_cgroup, '\n')) {  // "4:memory:/path" (v1), "0::/path" (v2)
    const auto first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string names = line.substr(first + 1, second - first - 1);
    const auto controllers = split(names, ',');
    const bool v2 = names.empty();
    if (!v2 && std::find(controllers.begin(), controllers.end(), controller) == controllers.end()) continue;
    const fs::path root = v2 ? fs::path(mount) : fs::path(mount) / controller;
    fs::path path = fs::path(line.substr(second + 1)).relative_path();
    for (;; path = path.parent_path()) {
      consider(root / path / (v2 ? v2_file : v1_file));
      if (path.empty()) break;
    }
  }
  return least;
}

std::uint64_t meminfo_bytes(const std::string& meminfo, const std::string& key) {
  const auto words = split(value_in(meminfo, key, ':'), ' ');
  const auto kilobytes = parse_int(words.front());
  return kilobytes && *kilobytes > 0 ? std::uint64_t(*kilobytes) * 1024 : 0;
}

HostFacts look_at_host(const std::string& log_folder) {
  HostFacts facts;
  facts.name = host_name();
  facts.addresses = local_addresses();
  facts.name_means = meanings_of(facts.name);
  facts.loopback_line = loopback_line(facts.name, text_of("/etc/hosts"));
  facts.system = value_in(text_of("/etc/os-release"), "PRETTY_NAME", '=');
  utsname kernel{};
  if (::uname(&kernel) == 0) facts.kernel = std::string(kernel.release) + " " + kernel.machine;
  facts.cpu_model = value_in(text_of("/proc/cpuinfo"), "model name", ':');
  facts.cores_online = int(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  facts.cores_usable = usable_cores();
  facts.cores_quota = cgroup_cores();
  facts.cpu = cpu_features();
  ask_openblas(facts);
  const std::string meminfo = text_of("/proc/meminfo"), cgroup = text_of("/proc/self/cgroup");
  facts.memory_total = meminfo_bytes(meminfo, "MemTotal");
  facts.memory_available = meminfo_bytes(meminfo, "MemAvailable");
  const auto number = [&](const char* controller, const char* v1, const char* v2) {
    return cgroup_number(cgroup, "/sys/fs/cgroup", controller, v1, v2);
  };
  facts.memory_limit = number("memory", "memory.limit_in_bytes", "memory.max");
  facts.memory_used = number("memory", "memory.usage_in_bytes", "memory.current");
  facts.tasks_limit = number("pids", "pids.max", "pids.max");
  facts.tasks_used = number("pids", "pids.current", "pids.current");
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) facts.shm_bytes = std::uint64_t(shm.f_blocks) * shm.f_frsize;
  facts.files = limit_of(RLIMIT_NOFILE);
  facts.processes = limit_of(RLIMIT_NPROC);
  facts.locked = limit_of(RLIMIT_MEMLOCK);
  facts.clock_synchronised = clock_is_synchronised();
  std::error_code none;
  const fs::directory_iterator cards("/sys/class/infiniband", none);
  facts.rdma = !none && cards != fs::directory_iterator();
  facts.disks.push_back(look_at_disk("temporary files", env("TMPDIR").value_or("/tmp")));
  if (!log_folder.empty()) facts.disks.push_back(look_at_disk("--log-dir", log_folder));
  facts.devices = look_at_devices();
  return facts;
}

}  // namespace tutti
