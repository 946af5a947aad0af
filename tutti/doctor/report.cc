#include "tutti/doctor/report.h"

#include <fmt/format.h>
#include <gnu/libc-version.h>
#include <openssl/crypto.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tutti/base/clock.h"
#include "tutti/base/sanitizers.h"
#include "tutti/base/text.h"
#include "tutti/rendezvous/schedulers.h"
#include "tutti/version.h"

namespace tutti::doctor {
namespace {

constexpr Grade kGrades[] = {Grade::kOk, Grade::kWarn, Grade::kFail};

namespace fs = std::filesystem;

// Variables that change how a job starts, how its ranks find each other, or how it computes.
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
#if TUTTI_ASAN
  return ", with ASan";
#elif TUTTI_TSAN
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

// The path of a shared library whose version matters, by the names of its files.
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

std::string cpu_flags(const launch::CpuFeatures& cpu) {
  std::vector<std::string> flags;
  const auto add = [&](bool has, const char* flag) {
    if (has) flags.emplace_back(flag);
  };
  add(cpu.avx2, "avx2"), add(cpu.fma, "fma"), add(cpu.avx512f, "avx512f"), add(cpu.avx512dq, "avx512dq");
  add(cpu.avx512bw, "avx512bw"), add(cpu.avx512vl, "avx512vl"), add(cpu.avx512cd, "avx512cd");
  return flags.empty() ? "none of avx2, fma, avx512" : join(flags, " ");
}

std::string started_by(const Environment& environment) {
  const auto scheduler = rendezvous::scheduler_of(environment);
  if (!scheduler.ok()) return "unclear: " + scheduler.error().detail;
  if (*scheduler) return (*scheduler)->starter;
  if (rendezvous::lookup(environment, "TORCHELASTIC_RUN_ID")) return "tutti run or torchrun";
  return "by hand";
}

}  // namespace

const char* name(Grade grade) {
  switch (grade) {
    case Grade::kOk:
      return "OK";
    case Grade::kWarn:
      return "WARN";
    case Grade::kFail:
      return "FAIL";
  }
  return "?";
}

std::string to_text(const std::vector<Finding>& findings) {
  std::size_t width = 0;
  for (const Finding& finding : findings) width = std::max(width, std::min<std::size_t>(finding.subject.size(), 32));
  std::string text;
  for (const Finding& finding : findings) {
    text += fmt::format("{:<4}  {:<{}}  {}{}\n", name(finding.grade), finding.subject, width, finding.fact,
                        finding.fix.empty() ? "" : " (fix: " + finding.fix + ")");
  }
  return text;
}

std::string summary(const std::vector<Finding>& findings) {
  std::vector<std::string> parts;
  for (const Grade grade : kGrades) {
    const auto count =
        std::count_if(findings.begin(), findings.end(), [&](const Finding& f) { return f.grade == grade; });
    parts.push_back(std::to_string(count) + " " + name(grade));
  }
  return join(parts, ", ");
}

Grade worst(const std::vector<Finding>& findings) {
  Grade grade = Grade::kOk;
  for (const Finding& finding : findings) grade = std::max(grade, finding.grade);
  return grade;
}

std::string to_json(const std::vector<Finding>& findings) {
  auto list = nlohmann::json::array();
  for (const Finding& finding : findings)
    list.push_back(
        {{"grade", name(finding.grade)}, {"subject", finding.subject}, {"fact", finding.fact}, {"fix", finding.fix}});
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Result<std::vector<Finding>> findings_from_json(const std::string& text) {
  const auto damaged = [](const std::string& what) {
    return Error{.code = Code::kCorrupt, .detail = "the findings of a node cannot be parsed: " + what};
  };
  const auto list = nlohmann::json::parse(text, nullptr, false);
  if (!list.is_array()) return damaged("it is no list");
  std::vector<Finding> findings;
  for (const auto& item : list) {
    Finding finding;
    const auto take = [&](const char* member, std::string& into) {
      const auto found = item.is_object() ? item.find(member) : item.end();
      if (!item.is_object() || found == item.end() || !found->is_string()) return false;
      into = found->get<std::string>();
      return true;
    };
    std::string grade;
    if (!take("grade", grade) || !take("subject", finding.subject) || !take("fact", finding.fact) ||
        !take("fix", finding.fix))
      return damaged("a member is missing");
    const auto known = std::find_if(std::begin(kGrades), std::end(kGrades), [&](Grade g) { return grade == name(g); });
    if (known == std::end(kGrades)) return damaged("there is no grade " + grade);
    finding.grade = *known;
    findings.push_back(std::move(finding));
  }
  return findings;
}

NamedFacts environment_report(const HostInfo& host, const Environment& environment) {
  NamedFacts out;
  const auto add = [&](const char* what, std::string value) { out.emplace_back(what, std::move(value)); };
  add("tutti", std::string(TUTTI_VERSION) + ", built with " + compiler() + sanitizers());
  add("time", wall_clock_text());
  add("host", host.name);
  add("system", host.system);
  add("kernel", host.kernel);
  add("libc", std::string("glibc ") + gnu_get_libc_version());
  add("OpenSSL", OpenSSL_version(OPENSSL_VERSION));
  add("CPU", host.cpu_model + "; " + cpu_flags(host.cpu));
  add("cores", std::to_string(host.cores_usable) + " usable of " + std::to_string(host.cores_online) +
                   (host.cores_quota ? ", cgroup quota " + std::to_string(*host.cores_quota) : ""));
  add("OpenBLAS", !host.openblas_trouble.empty() ? host.openblas_trouble + " when it was loaded"
                  : host.openblas.empty()        ? "none"
                                          : "kernels for " + host.openblas + "; " + library({"libopenblas.so.0"}));
  add("LibTorch", library({"libtorch.so", "libtorch.so.1.13"}));
  add("Gloo", library({"libgloo.so", "libgloo.so.0"}));
  add("Open MPI", library({"libmpi.so.40", "libmpi.so"}));
  add("NCCL", library({"libnccl.so.2", "libnccl.so"}));
  const DeviceInfo& devices = host.devices;
  add("GPUs", std::to_string(devices.on_bus) + " on the bus, " + std::to_string(devices.in_driver) +
                  " in the driver, " +
                  (devices.visible ? std::to_string(*devices.visible) + " visible to CUDA"
                                   : "CUDA: " + devices.runtime_trouble));
  if (!devices.driver.empty()) add("driver", devices.driver);
  add("memory", bytes_text(host.memory_available) + " available of " + bytes_text(host.memory_total) +
                    (host.memory_limit ? ", cgroup limit " + bytes_text(*host.memory_limit) : ""));
  if (host.shm_bytes) add("/dev/shm", bytes_text(*host.shm_bytes));
  add("open files", limits_text(host.files));
  add("processes",
      limits_text(host.processes) + (host.tasks_limit ? ", cgroup limit " + std::to_string(*host.tasks_limit) : ""));
  add("locked memory", limits_text(host.locked));
  add("addresses", join(host.addresses, ", "));
  add("name means", host.name_means.empty() ? "nothing" : join(host.name_means, ", "));
  add("clock", !host.clock_synchronised ? "unknown" : *host.clock_synchronised ? "synchronised" : "not synchronised");
  for (const DiskInfo& disk : host.disks)
    add("disk", disk.path + ": " + bytes_text(disk.free) + " free of " + bytes_text(disk.total) +
                    (disk.trouble.empty() ? "" : ", " + disk.trouble));
  add("started by", started_by(environment));
  for (const auto& [name, value] : environment)
    if (is_shown(name)) out.emplace_back(name, is_secret(name) ? "(set)" : value);
  return out;
}

}  // namespace tutti::doctor
