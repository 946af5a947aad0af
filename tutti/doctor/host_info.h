#pragma once
// The properties of a host, as a value: gathered once, judged by pure functions (checks.h), printed by `tutti env`.
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/doctor/gpus.h"
#include "tutti/launch/tuning.h"

namespace tutti::doctor {

// A limit of processes (ulimit); none: unlimited.
struct SystemLimit {
  std::optional<std::uint64_t> soft, hard;
};

struct DiskInfo {
  std::string what;  // "temporary files", "--log-dir"
  std::string path;
  std::uint64_t free = 0, total = 0;  // for this user
  std::string trouble;                // why no file can be made there; empty: it can
};

// The GPUs as the bus, the driver and this process see them.
struct DeviceInfo {
  int on_bus = 0;               // NVIDIA's display and 3D controllers in /sys/bus/pci
  int in_driver = 0;            // served by the driver (/proc/driver/nvidia/gpus)
  std::vector<int> nodes;       // /dev/nvidiaN that this process may open
  std::vector<int> forbidden;   // and may not
  std::string driver;           // its version; empty: none is loaded
  std::optional<int> visible;   // given to this process by the CUDA runtime; none: no runtime, or it fails
  std::string runtime_trouble;  // why not
  std::optional<std::string> visible_variable;  // CUDA_VISIBLE_DEVICES
  GpuSurvey survey;
  std::vector<int> ranks_take;  // places in the survey of the GPUs that ranks take in turn
  std::vector<int> core_nodes;  // NUMA nodes with a core that this process may use; empty: not known
};

struct HostInfo {
  std::string name;
  std::vector<std::string> addresses;      // of interfaces that are up, loopback last
  std::vector<std::string> name_means;     // what its own name resolves to here
  std::string loopback_line;               // of /etc/hosts, if that makes the name a loopback address
  std::string address_for_others;          // what other hosts are given then; empty: none
  std::string system, kernel, cpu_model;   // for people
  int cores_online = 1, cores_usable = 1;  // usable: by affinity and quota
  std::optional<int> cores_quota;
  launch::CpuFeatures cpu;
  std::string openblas;                                    // the kernels of an OpenBLAS here; empty: none here
  std::string openblas_trouble;                            // it died when asked
  std::uint64_t memory_total = 0, memory_available = 0;    // bytes
  std::optional<std::uint64_t> memory_limit, memory_used;  // of the cgroup
  std::optional<std::uint64_t> tasks_limit, tasks_used;    // of the cgroup: processes and threads
  std::optional<std::uint64_t> shm_bytes;                  // of /dev/shm
  SystemLimit files, processes, locked;
  std::optional<bool> clock_synchronised;  // none: the system does not say
  bool rdma = false;                       // there are InfiniBand or RoCE cards
  std::vector<DiskInfo> disks;
  DeviceInfo devices;
};

// Inspects this host. `log_folder` may be empty. Takes about 100 ms, most of it for OpenBLAS, which is loaded in a
// process of its own. Main thread of a process with one thread.
HostInfo inspect_host(const std::string& log_folder);

// A number in the files of this process's cgroup: the smallest of the group and its parents (a container may show only
// the root). `controller` and the files of v1 and v2 are such as ("memory", "memory.limit_in_bytes", "memory.max").
// None: no limit, or not known. `self_cgroup` is the text of /proc/self/cgroup.
std::optional<std::uint64_t> cgroup_number(const std::string& self_cgroup, const std::string& mount,
                                           const std::string& controller, const std::string& v1_file,
                                           const std::string& v2_file);
// "MemAvailable" of the text of /proc/meminfo, in bytes; 0 if it is not there.
std::uint64_t meminfo_bytes(const std::string& meminfo, const std::string& key);

}  // namespace tutti::doctor
