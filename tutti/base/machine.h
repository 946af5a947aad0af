#pragma once
// The machine and this process: names, cores, GPUs, build.
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/env.h"

namespace tutti {

// For messages. Two machines may have the same name.
std::string host_name();
// Equal for two processes on the same boot of the same kernel. They share cores and devices, also across containers.
std::string boot_id();
// Equal for two processes on the same boot of the same kernel and in the same network namespace. They can share memory
// and reach each other over loopback. Two containers of one machine differ, unless they share its network.
std::string machine_id();

// The number of cores that this process may use: the affinity mask, limited by the cgroup's CPU quota (v1 or v2). At
// least 1. Reads a few files, so do not call it in an inner loop.
int usable_cores();
// Cores as a set: bit c % 64 of word c / 64 is core c.
using CoreMask = std::vector<std::uint64_t>;
// The affinity mask of the calling thread.
CoreMask allowed_cores();
int count_of(const CoreMask& cores);
// The smallest mask that contains these cores; empty if there are none.
CoreMask mask_of(std::span<const int> cores);
// The CPU quota of this process in whole cores, rounded up; none without a quota.
std::optional<int> cgroup_cores();
// The quota according to `self_cgroup`, the text of /proc/self/cgroup, and `mount`, the mount point of the cgroups.
std::optional<int> cgroup_cores(const std::string& self_cgroup, const std::string& mount);

// The GPUs that a process may use, as CUDA_VISIBLE_DEVICES names them ("0", "GPU-8f2a..."), in CUDA's order. These are
// its entries if it is set, otherwise a number for each device file in `devices`. Does not call CUDA, which would take
// a second and memory on each GPU.
std::vector<std::string> visible_gpus(const Environment& environment, const std::string& devices = "/dev");

// Whether a process on this host is stopped by a signal (SIGSTOP, SIGTSTP) or a debugger. A debugger that the calling
// process started does not count, nor one that the process itself started, such as a leak checker: they let go soon.
// False if there is no such process.
bool is_suspended(pid_t pid);

// The GNU build id of this program in hexadecimal, or the size of its file if the linker wrote none. Copies of one
// program file have the same build id; compilations of different sources do not.
std::string program_build();
// The file name of this program, without its folder, for messages.
std::string program_name();

}  // namespace tutti
