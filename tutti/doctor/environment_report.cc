#include "tutti/doctor/environment_report.h"

#include <gnu/libc-version.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>

#include "tutti/base/clock.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/schedulers.h"
#include "tutti/version.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;

// Variables that change how a job starts, finds its others, or computes.
constexpr std::array kPrefixes = {"TUTTI_",
                                  "PET_",
                                  "TORCHELASTIC_",
                                  "NCCL_",
                                  "GLOO_",
                                  "CUDA_",
                                  "NVIDIA_VISIBLE",
                                  "OMP_",
                                  "OPENBLAS_",
                                  "GOMP_",
                                  "KMP_",
                                  "MKL_",
                                  "MALLOC_",
                                  "SLURM_",
                                  "SLURMD_",
                                  "PBS_",
                                  "OMPI_",
                                  "PMI_",
                                  "PMIX_",
                                  "HYDI_",
                                  "MV2_",
                                  "I_MPI_",
                                  "JOB_COMPLETION_INDEX",
                                  "KUBERNETES_SERVICE_HOST"};
constexpr std::array kNames = {"RANK",       "LOCAL_RANK",     "WORLD_SIZE",  "LOCAL_WORLD_SIZE", "NODE_RANK",
                               "GROUP_RANK", "MASTER_ADDR",    "MASTER_PORT", "LD_LIBRARY_PATH",  "LD_PRELOAD",
                               "TMPDIR",     "XDG_RUNTIME_DIR"};

bool is_shown(const std::string& name) {
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [&](const char* prefix) { return name.starts_with(prefix); }) ||
         std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

bool is_secret(const std::string& name) {
  return (name.find("SECRET") != std::string::npos && !name.ends_with("_FILE") && !name.ends_with("_FD")) ||
         name.find("TOKEN") != std::string::npos || name.find("PASSWORD") != std::string::npos ||
         name.find("_KEY") != std::string::npos;
}

std::string compiler() {
#if defined(__clang__)
  return "clang " __clang_version__;
#else
  return "gcc " __VERSION__;
#endif
}

std::string sanitizers() {
#if defined(__SANITIZE_ADDRESS__)
  return ", with ASan";
#elif defined(__SANITIZE_THREAD__)
  return ", with TSan";
#else
  return {};
#endif
}

std::string limits_text(const SystemLimit& limit) {
  const auto one = [](const std::optional<std::uint64_t>& value) {
    return value ? std::to_string(*value) : std::string("unlimited");
  };
  return one(limit.soft) + " (hard " + one(limit.hard) + ")";
}

// Shared libraries whose version decides about behaviour, by the names of their files.
std::string library(const std::vector<std::string>& names) {
  for (const char* folder : {"/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib",
                             "/usr/lib", "/usr/local/cuda/lib64"}) {
    for (const std::string& name : names) {
      std::error_code none;
      const fs::path path = fs::path(folder) / name;
      if (!fs::exists(path, none)) continue;
      const fs::path real = fs::canonical(path, none);
      return none ? path.string() : real.string();
    }
  }
  return "not in the usual folders";
}

std::string cpu_flags(const CpuFeatures& cpu) {
  std::vector<std::string> flags;
  const auto add = [&](bool has, const char* flag) {
    if (has) flags.emplace_back(flag);
  };
  add(cpu.avx2, "avx2"), add(cpu.fma, "fma"), add(cpu.avx512f, "avx512f"), add(cpu.avx512dq, "avx512dq");
  add(cpu.avx512bw, "avx512bw"), add(cpu.avx512vl, "avx512vl"), add(cpu.avx512cd, "avx512cd");
  return flags.empty() ? "none of avx2, fma, avx512" : join(flags, " ");
}

std::string started_by(const Environment& environment) {
  const auto scheduler = scheduler_of(environment);
  if (!scheduler.ok()) return "unclear: " + scheduler.error().detail;
  if (*scheduler) return (*scheduler)->starter;
  if (lookup(environment, "TORCHELASTIC_RUN_ID")) return "tutti run or torchrun";
  return "by hand";
}

}  // namespace

NamedFacts environment_report(const HostFacts& facts, const Environment& environment) {
  NamedFacts out;
  const auto add = [&](const char* what, std::string value) { out.emplace_back(what, std::move(value)); };
  add("tutti", std::string(TUTTI_VERSION) + ", built with " + compiler() + sanitizers());
  add("time", wall_clock_text());
  add("host", facts.name);
  add("system", facts.system);
  add("kernel", facts.kernel);
  add("libc", std::string("glibc ") + gnu_get_libc_version());
  add("OpenSSL", OpenSSL_version(OPENSSL_VERSION));
  add("CPU", facts.cpu_model + "; " + cpu_flags(facts.cpu));
  add("cores", std::to_string(facts.cores_usable) + " usable of " + std::to_string(facts.cores_online) +
                   (facts.cores_quota ? ", cgroup quota " + std::to_string(*facts.cores_quota) : ""));
  add("OpenBLAS", !facts.openblas_trouble.empty() ? facts.openblas_trouble + " when it was loaded"
                  : facts.openblas.empty()        ? "none"
                                           : "kernels for " + facts.openblas + "; " + library({"libopenblas.so.0"}));
  add("LibTorch", library({"libtorch.so", "libtorch.so.1.13"}));
  add("Gloo", library({"libgloo.so", "libgloo.so.0"}));
  add("Open MPI", library({"libmpi.so.40", "libmpi.so"}));
  add("NCCL", library({"libnccl.so.2", "libnccl.so"}));
  const DeviceFacts& devices = facts.devices;
  add("GPUs", std::to_string(devices.on_bus) + " on the bus, " + std::to_string(devices.in_driver) +
                  " in the driver, " +
                  (devices.visible ? std::to_string(*devices.visible) + " visible to CUDA"
                                   : "CUDA: " + devices.runtime_trouble));
  if (!devices.driver.empty()) add("driver", devices.driver);
  add("memory", bytes_text(facts.memory_available) + " available of " + bytes_text(facts.memory_total) +
                    (facts.memory_limit ? ", cgroup limit " + bytes_text(*facts.memory_limit) : ""));
  if (facts.shm_bytes) add("/dev/shm", bytes_text(*facts.shm_bytes));
  add("open files", limits_text(facts.files));
  add("processes",
      limits_text(facts.processes) + (facts.tasks_limit ? ", cgroup limit " + std::to_string(*facts.tasks_limit) : ""));
  add("locked memory", limits_text(facts.locked));
  add("addresses", join(facts.addresses, ", "));
  add("name means", facts.name_means.empty() ? "nothing" : join(facts.name_means, ", "));
  add("clock", !facts.clock_synchronised ? "unknown" : *facts.clock_synchronised ? "synchronised" : "not synchronised");
  for (const DiskFacts& disk : facts.disks)
    add("disk", disk.path + ": " + bytes_text(disk.free) + " free of " + bytes_text(disk.total) +
                    (disk.trouble.empty() ? "" : ", " + disk.trouble));
  add("started by", started_by(environment));
  for (const auto& [name, value] : environment)
    if (is_shown(name)) out.emplace_back(name, is_secret(name) ? "(set)" : value);
  return out;
}

}  // namespace tutti
