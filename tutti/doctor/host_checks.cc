// Needs against limits. What a job needs is counted from what the agent and the ranks open and start: the agent two
// pipes and two files for each rank, the store's host a connection or two for each rank of the world, a rank a
// connection or more for each rank of another host, an engine thread and OpenMP's threads.
#include "tutti/doctor/host_checks.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tutti/base/fd.h"
#include "tutti/base/text.h"
#include "tutti/doctor/devices.h"
#include "tutti/transport/address.h"
#include "tutti/transport/socket.h"

namespace tutti {
namespace {

constexpr std::uint64_t kGiB = std::uint64_t(1) << 30;
constexpr std::uint64_t kTrial = std::uint64_t(64) << 20;       // of the heap, taken and given back
constexpr std::uint64_t kLeastMemory = std::uint64_t(1) << 28;  // for a rank that computes anything
constexpr std::uint64_t kLeastDisk = kGiB;
constexpr std::uint64_t kThreadsOfARank = 4;  // besides OpenMP's

std::string of_ranks(int ranks) { return std::to_string(ranks) + (ranks == 1 ? " rank" : " ranks"); }
std::string limit_text(const std::optional<std::uint64_t>& limit) {
  return limit ? std::to_string(*limit) : std::string("unlimited");
}

// The checks of one host, each a function that adds its line.
class Examination {
 public:
  Examination(const HostFacts& facts, const JobWishes& wishes) : facts_(facts), wishes_(wishes) {}

  std::vector<Finding> run() {
    for (const Error& bad : wishes_.bad_variables) add(Grade::kFail, "variables", bad.detail, bad.hint);
    addresses();
    cores();
    threads();
    blas();
    memory();
    open_files();
    processes();
    locked_memory();
    shared_memory_by_name();
    disks();
    clock();
    for (Finding& finding : check_devices(facts_.devices, wishes_.ranks, wishes_.devices))
      findings_.push_back(std::move(finding));
    return std::move(findings_);
  }

 private:
  void add(Grade grade, const char* subject, std::string fact, std::string fix = {}) {
    findings_.push_back({grade, subject, std::move(fact), std::move(fix)});
  }

  void addresses() {
    const bool outward = std::any_of(facts_.addresses.begin(), facts_.addresses.end(),
                                     [](const std::string& host) { return !is_loopback({.host = host}); });
    const std::string all = facts_.addresses.empty() ? "none" : join(facts_.addresses, ", ");
    if (!outward)
      return add(
          wishes_.nodes > 1 ? Grade::kFail : Grade::kOk, "addresses", all + ": only loopback",
          wishes_.nodes > 1 ? "bring a network interface up (ip address); other hosts cannot reach this one" : "");
    if (facts_.name_means.empty())
      return add(Grade::kWarn, "addresses", all + "; the name " + facts_.name + " resolves to nothing here",
                 "give addresses instead of names, or add the name to /etc/hosts");
    const bool trap = is_loopback({.host = facts_.name_means.front()});
    if (!trap)
      return add(Grade::kOk, "addresses",
                 all + "; the name " + facts_.name + " is " + facts_.name_means.front() + " here");
    const bool matters = wishes_.nodes > 1;
    add(matters ? Grade::kWarn : Grade::kOk, "addresses",
        all + "; the name " + facts_.name + " is " + facts_.name_means.front() +
            " here, which other hosts cannot reach" + (matters ? "" : " (no matter on one host)"),
        !matters ? ""
        : facts_.loopback_line.empty()
            ? "give --master-addr as an address"
            : "change the line \"" + facts_.loopback_line + "\", or give --master-addr as an address");
  }

  void cores() {
    const int usable = facts_.cores_usable;
    std::string text = std::to_string(usable) + (usable == 1 ? " core for " : " cores for ") + of_ranks(wishes_.ranks);
    if (facts_.cores_quota && *facts_.cores_quota < facts_.cores_online)
      text += " (a cgroup gives " + std::to_string(*facts_.cores_quota) + " of " + std::to_string(facts_.cores_online) +
              ")";
    else if (usable < facts_.cores_online)
      text += " (the affinity mask gives them, of " + std::to_string(facts_.cores_online) + ")";
    if (wishes_.ranks > usable)
      return add(Grade::kWarn, "cores", text + ": ranks take turns, and each meeting waits for all of them",
                 "tutti run -n " + std::to_string(usable) + ", or more cores for the job");
    add(Grade::kOk, "cores", text);
  }

  void blas() {
    const std::string best = openblas_coretype(facts_.cpu);
    if (!facts_.openblas_trouble.empty())
      return add(Grade::kFail, "BLAS", "OpenBLAS " + facts_.openblas_trouble + " when it was loaded",
                 wishes_.core_type.empty()
                     ? "reinstall it (Debian: libopenblas0-pthread)"
                     : "OPENBLAS_CORETYPE=" + wishes_.core_type + " is wrong for this CPU: unset it");
    if (facts_.openblas.empty())
      return add(Grade::kOk, "BLAS", "no OpenBLAS in the usual places; a program may bring its own");
    const std::string slow = slowness_of_kernels(facts_.openblas, facts_.cpu);
    if (!slow.empty() && !wishes_.core_type.empty())
      return add(Grade::kWarn, "BLAS", "OpenBLAS runs its kernels for " + facts_.openblas + ": " + slow,
                 "OPENBLAS_CORETYPE=" + wishes_.core_type + " asks for them: unset it or say " + best);
    if (!slow.empty())
      return add(
          Grade::kWarn, "BLAS", "OpenBLAS takes this CPU for a " + facts_.openblas + ": " + slow,
          "tutti run sets OPENBLAS_CORETYPE=" + best + "; set it yourself for programs that are started otherwise");
    add(Grade::kOk, "BLAS", "OpenBLAS runs its kernels for " + facts_.openblas);
  }

  void threads() {
    const auto variable = [&](const std::string& name) {
      const auto at = wishes_.threads.find(name);
      return at == wishes_.threads.end() ? std::nullopt : std::optional(at->second);
    };
    const int cores = std::max(1, facts_.cores_usable / std::max(1, wishes_.ranks));
    const std::string costs = costly_threads(variable, cores);
    if (!costs.empty()) add(Grade::kWarn, "threads", costs, "unset the variable: tutti run then chooses its value");
  }

  void memory() {
    const std::uint64_t used = facts_.memory_used.value_or(0);
    std::uint64_t room = facts_.memory_available;
    std::string text = bytes_text(room) + " of " + bytes_text(facts_.memory_total) + " available";
    if (facts_.memory_limit && *facts_.memory_limit < facts_.memory_total) {
      room = std::min(room, *facts_.memory_limit > used ? *facts_.memory_limit - used : 0);
      text = bytes_text(room) + " left of the cgroup's " + bytes_text(*facts_.memory_limit);
    }
    const std::uint64_t share = room / std::uint64_t(std::max(1, wishes_.ranks));
    if (wishes_.heap && *wishes_.heap > share)
      return add(Grade::kFail, "memory",
                 text + ", but " + of_ranks(wishes_.ranks) + " with a heap of " + bytes_text(*wishes_.heap) + " need " +
                     bytes_text(*wishes_.heap * std::uint64_t(wishes_.ranks)),
                 "fewer ranks, smaller batches, or more memory for the job");
    if (share < kLeastMemory)
      return add(Grade::kWarn, "memory", text + ": " + bytes_text(share) + " for each of " + of_ranks(wishes_.ranks),
                 "end what else runs here, or start fewer ranks");
    add(Grade::kOk, "memory", text + ", " + bytes_text(share) + " a rank");
  }

  void open_files() {
    const std::uint64_t world = std::uint64_t(std::max(wishes_.world, wishes_.ranks));
    const std::uint64_t need = 256 + 4 * std::uint64_t(wishes_.ranks) + 2 * world;
    const auto& [soft, hard] = facts_.files;
    const std::string text =
        limit_text(soft) + " (hard limit " + limit_text(hard) + "), " + std::to_string(need) + " needed";
    if (hard && *hard < need)
      return add(Grade::kFail, "open files", text,
                 "raise the hard limit: \"* hard nofile 1048576\" in /etc/security/limits.conf, LimitNOFILE= of a "
                 "service, --ulimit nofile of a container");
    if (soft && *soft < need) return add(Grade::kOk, "open files", text + "; tutti run raises the limit");
    add(Grade::kOk, "open files", text);
  }

  void processes() {
    const auto threads = std::uint64_t(std::max(1, facts_.cores_usable / std::max(1, wishes_.ranks)));
    const std::uint64_t need = 16 + std::uint64_t(wishes_.ranks) * (kThreadsOfARank + threads);
    std::optional<std::uint64_t> room = facts_.processes.soft;
    std::string whose = "ulimit -u";
    if (facts_.tasks_limit) {
      const std::uint64_t used = facts_.tasks_used.value_or(0);
      const std::uint64_t left = *facts_.tasks_limit > used ? *facts_.tasks_limit - used : 0;
      if (!room || left < *room) room = left, whose = "left of the cgroup's " + std::to_string(*facts_.tasks_limit);
    }
    if (!room) return add(Grade::kOk, "processes", "unlimited, " + std::to_string(need) + " needed with their threads");
    const std::string text =
        std::to_string(*room) + " (" + whose + "), " + std::to_string(need) + " needed with their threads";
    if (*room < need)
      return add(Grade::kFail, "processes", text,
                 whose == "ulimit -u" ? "raise it: ulimit -u, or nproc in /etc/security/limits.conf"
                                      : "raise pids.max: --pids-limit of a container, TasksMax= of a service");
    add(Grade::kOk, "processes", text);
  }

  void locked_memory() {
    const auto& soft = facts_.locked.soft;
    const std::string text = soft ? bytes_text(*soft) : std::string("unlimited");
    if (facts_.rdma && soft && *soft < kGiB)
      return add(Grade::kWarn, "locked memory", text + ", and this host has RDMA cards, which need theirs locked",
                 "ulimit -l unlimited (memlock in /etc/security/limits.conf), or NCCL and MPI fall back to TCP");
    add(Grade::kOk, "locked memory", text + (facts_.rdma ? "" : "; nothing here needs any"));
  }

  void shared_memory_by_name() {
    if (!facts_.shm_bytes) return;
    add(Grade::kOk, "/dev/shm",
        bytes_text(*facts_.shm_bytes) + "; Tutti does not use it (its memory has no name), NCCL and MPI do");
  }

  void disks() {
    for (const DiskFacts& disk : facts_.disks) {
      const std::string text =
          disk.path + " (" + disk.what + "): " + bytes_text(disk.free) + " free of " + bytes_text(disk.total);
      if (!disk.trouble.empty()) {
        add(Grade::kFail, "disk", disk.path + " (" + disk.what + "): no file can be made there: " + disk.trouble,
            disk.what == "--log-dir" ? "give another --log-dir" : "make it writable, or set TMPDIR");
      } else if (disk.free < kLeastDisk) {
        add(Grade::kWarn, "disk", text, "make room: logs, flight records and checkpoints go there");
      } else {
        add(Grade::kOk, "disk", text);
      }
    }
  }

  void clock() {
    if (!facts_.clock_synchronised)
      return add(Grade::kOk, "clock", "the system does not tell whether it is synchronised");
    if (*facts_.clock_synchronised) return add(Grade::kOk, "clock", "synchronised");
    add(wishes_.nodes > 1 ? Grade::kWarn : Grade::kOk, "clock",
        "not synchronised; Tutti compares no clocks of two hosts, but the times in logs may not match",
        wishes_.nodes > 1 ? "run an NTP client (Debian: systemd-timesyncd or chrony)" : "");
  }

  const HostFacts& facts_;
  const JobWishes& wishes_;
  std::vector<Finding> findings_;
};

// Memory as the heap takes it: without a name, with its pages, sealed.
Finding try_memory() {
  const std::string size = bytes_text(kTrial);
  const auto failed = [&](const std::string& what) {
    const Error error = system_error(errno, what);
    return Finding{
        Grade::kFail, "heap", "no shared memory for ranks: " + to_string(error),
        "a seccomp profile, a memory limit or a very old kernel stands in the way; TUTTI_TRANSPORT=tcp needs none"};
  };
  const Fd fd(::memfd_create("tutti-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return failed("memfd_create");
  if (const int trouble = ::posix_fallocate(fd.get(), 0, off_t(kTrial)); trouble != 0) {
    errno = trouble;
    return failed("taking " + size);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) return failed("sealing it");
  return {Grade::kOk, "heap", size + " of shared memory taken and given back", ""};
}

Finding try_port(const std::string& host, int port, const char* whose, const char* option) {
  const Address address{.host = host, .port = std::uint16_t(port)};
  const auto listening = listen(address);
  if (listening.ok()) return {Grade::kOk, "ports", to_string(address) + " is free (" + whose + ")", ""};
  const Error& error = listening.error();
  const bool taken = error.code == Code::kAddressInUse;
  return {Grade::kFail, "ports", to_string(error) + " (" + whose + ")",
          taken ? std::string("end who holds it, or choose another with ") + option
                : "give --master-addr as an address of this host"};
}

}  // namespace

std::vector<Finding> check_host(const HostFacts& facts, const JobWishes& wishes) {
  return Examination(facts, wishes).run();
}

std::vector<Finding> try_host(const JobWishes& wishes) {
  std::vector<Finding> findings = {try_memory()};
  for (const std::string& host : wishes.addresses) {
    findings.push_back(try_port(host, wishes.master_port, "MASTER_PORT of the program", "--master-port"));
    findings.push_back(try_port(host, wishes.store_port, "the store", "--store-port"));
  }
  return findings;
}

}  // namespace tutti
