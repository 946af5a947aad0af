// Nothing here judges, and nothing fails: what cannot be read stays empty, because a diagnosis should not stop at the
// first missing permission.
//
// OpenBLAS chooses its kernels when it is loaded, starts threads, and may die of an instruction that a wrong
// OPENBLAS_CORETYPE promised. So it is loaded in a forked process, which sends the name through a pipe.
#include "tutti/doctor/host_info.h"

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
#include "tutti/comm/cuda/runtime.h"
#include "tutti/launch/affinity/binding.h"
#include "tutti/launch/monitor/process_info.h"
#include "tutti/launch/process.h"
#include "tutti/rendezvous/reach_store.h"
#include "tutti/transport/address.h"

namespace tutti::doctor {
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

DiskInfo inspect_disk(const std::string& what, const std::string& path) {
  DiskInfo disk{.what = what, .path = path};
  fs::path existing = path;  // the folder itself may not exist yet
  std::error_code ignored;
  while (!fs::exists(existing, ignored) && existing.has_relative_path()) existing = existing.parent_path();
  if (existing.empty()) existing = ".";
  struct statvfs info {};
  if (::statvfs(existing.c_str(), &info) == 0) {
    disk.free = std::uint64_t(info.f_bavail) * info.f_frsize;
    disk.total = std::uint64_t(info.f_blocks) * info.f_frsize;
  }
  std::string file = existing / ".tutti-doctor-XXXXXX";
  const Fd made(::mkstemp(file.data()));
  if (made) {
    (void)::unlink(file.c_str());
  } else {
    disk.trouble = std::strerror(errno);
  }
  return disk;
}

// The name of the kernels of the OpenBLAS that a program with LibTorch would load.
void ask_openblas(HostInfo& host) {
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
    if (const std::string core = launch::loaded_openblas_core(); !core.empty()) name = core;
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
  const launch::Exit exit = launch::exit_of(status);
  if (!exit.ok()) {
    host.openblas_trouble = to_string(exit);
  } else if (said != "none") {
    host.openblas = said;
  }
}

std::optional<bool> clock_is_synchronised() {
  timex time{};
  const int state = ::adjtimex(&time);
  if (state < 0) return std::nullopt;
  return state != TIME_ERROR && !(time.status & STA_UNSYNC);
}

std::vector<std::string> addresses_of(const std::string& name) {
  std::vector<std::string> all;
  if (const auto found = resolve(transport::Address{.host = name}); found.ok())
    for (const transport::Address& address : *found) all.push_back(address.host);
  return all;
}

std::string line_of(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(trim(line));
}

// Three parties know about a GPU, and if they disagree something is wrong: the PCI bus (the card is there), the driver
// (it serves the card) and the CUDA runtime (this process may use it). A card that "fell off the bus" stays in sysfs or
// leaves the driver's list. A container may have fewer device files than the driver has cards. CUDA_VISIBLE_DEVICES
// hides some, and everything after its first wrong entry.
DeviceInfo inspect_devices() {
  DeviceInfo devices;
  std::error_code none;
  for (const auto& entry : fs::directory_iterator("/sys/bus/pci/devices", none)) {
    const std::string kind = line_of(entry.path() / "class");  // 0x0300xx VGA, 0x0302xx 3D controller
    if (line_of(entry.path() / "vendor") == "0x10de" && (kind.starts_with("0x0300") || kind.starts_with("0x0302")))
      ++devices.on_bus;
  }
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/driver/nvidia/gpus", none))
    ++devices.in_driver;
  for (const auto& entry : fs::directory_iterator("/dev", none)) {
    const std::string file = entry.path().filename();
    const auto number = file.starts_with("nvidia") ? parse_int(file.substr(6)) : std::nullopt;
    if (!number) continue;
    const bool open = ::access(entry.path().c_str(), R_OK | W_OK) == 0;
    (open ? devices.nodes : devices.forbidden).push_back(int(*number));
  }
  std::sort(devices.nodes.begin(), devices.nodes.end());
  std::sort(devices.forbidden.begin(), devices.forbidden.end());
  const std::string version = line_of("/proc/driver/nvidia/version");  // "NVRM version: NVIDIA ...  580.1  date"
  if (!version.empty())
    devices.driver = version.substr(version.find(':') == std::string::npos ? 0 : version.find(':') + 2);
  devices.visible_variable = env("CUDA_VISIBLE_DEVICES");
  if (const auto cuda = cuda::runtime(); cuda.ok()) {
    int count = 0;
    const Status counted = (*cuda)->check((*cuda)->cudaGetDeviceCount(&count), "count devices");
    if (counted.ok())
      devices.visible = count;
    else
      devices.runtime_trouble = counted.error().detail;
  } else {
    devices.runtime_trouble = cuda.error().detail;
  }
  devices.survey = survey_gpus();
  devices.ranks_take = places_of(visible_gpus(current_environment()), devices.survey);
  if (const auto topology = launch::topology_from_sys(allowed_cores()); topology.ok())
    for (const launch::Core& core : *topology)
      if (std::find(devices.core_nodes.begin(), devices.core_nodes.end(), core.numa) == devices.core_nodes.end())
        devices.core_nodes.push_back(core.numa);
  return devices;
}

}  // namespace

std::optional<std::uint64_t> cgroup_number(const std::string& self_cgroup, const std::string& mount,
                                           const std::string& controller, const std::string& v1_file,
                                           const std::string& v2_file) {
  std::optional<std::uint64_t> least;
  for (const launch::CgroupFolder& folder : launch::cgroup_folders(self_cgroup, mount, controller)) {
    const auto number = parse_int(trim(text_of(folder.path + (folder.v2 ? v2_file : v1_file))));
    // v1 writes "no limit" as a number of pages that no machine has.
    if (number && *number >= 0 && *number < (std::int64_t(1) << 60))
      least = std::min(std::uint64_t(*number), least.value_or(std::uint64_t(*number)));
  }
  return least;
}

std::uint64_t meminfo_bytes(const std::string& meminfo, const std::string& key) {
  const auto words = split(value_in(meminfo, key, ':'), ' ');
  const auto kilobytes = parse_int(words.front());
  return kilobytes && *kilobytes > 0 ? std::uint64_t(*kilobytes) * 1024 : 0;
}

HostInfo inspect_host(const std::string& log_folder) {
  HostInfo host;
  host.name = host_name();
  host.addresses = transport::local_addresses();
  host.name_means = addresses_of(host.name);
  host.loopback_line = rendezvous::loopback_line(host.name, text_of("/etc/hosts"));
  host.address_for_others = rendezvous::address_for_others();
  host.system = value_in(text_of("/etc/os-release"), "PRETTY_NAME", '=');
  utsname kernel{};
  if (::uname(&kernel) == 0) host.kernel = std::string(kernel.release) + " " + kernel.machine;
  host.cpu_model = value_in(text_of("/proc/cpuinfo"), "model name", ':');
  host.cores_online = int(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  host.cores_usable = usable_cores();
  host.cores_quota = cgroup_cores();
  host.cpu = launch::cpu_features();
  ask_openblas(host);
  const std::string meminfo = text_of("/proc/meminfo"), cgroup = text_of("/proc/self/cgroup");
  host.memory_total = meminfo_bytes(meminfo, "MemTotal");
  host.memory_available = meminfo_bytes(meminfo, "MemAvailable");
  const auto number = [&](const char* controller, const char* v1, const char* v2) {
    return cgroup_number(cgroup, "/sys/fs/cgroup", controller, v1, v2);
  };
  host.memory_limit = number("memory", "memory.limit_in_bytes", "memory.max");
  host.memory_used = number("memory", "memory.usage_in_bytes", "memory.current");
  host.tasks_limit = number("pids", "pids.max", "pids.max");
  host.tasks_used = number("pids", "pids.current", "pids.current");
  struct statvfs shm {};
  if (::statvfs("/dev/shm", &shm) == 0) host.shm_bytes = std::uint64_t(shm.f_blocks) * shm.f_frsize;
  host.files = limit_of(RLIMIT_NOFILE);
  host.processes = limit_of(RLIMIT_NPROC);
  host.locked = limit_of(RLIMIT_MEMLOCK);
  host.clock_synchronised = clock_is_synchronised();
  std::error_code none;
  const fs::directory_iterator cards("/sys/class/infiniband", none);
  host.rdma = !none && cards != fs::directory_iterator();
  host.disks.push_back(inspect_disk("temporary files", env("TMPDIR").value_or("/tmp")));
  if (!log_folder.empty()) host.disks.push_back(inspect_disk("--log-dir", log_folder));
  host.devices = inspect_devices();
  return host;
}

}  // namespace tutti::doctor
