// Needs against limits. The needs of a job are counted from what the agent and the ranks open and start: the agent two
// pipes and two files for each rank, the store's host a connection or two for each rank of the world, a rank one or
// more connections for each rank of another host, a progress thread and OpenMP's threads.
#include "tutti/doctor/checks.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>

#include "tutti/base/fd.h"
#include "tutti/base/text.h"
#include "tutti/doctor/gpu_checks.h"
#include "tutti/transport/address.h"
#include "tutti/transport/socket.h"

namespace tutti::doctor {
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
class HostChecks {
 public:
  HostChecks(const HostInfo& host, const PlannedJob& job) : host_(host), job_(job) {}

  std::vector<Finding> run() {
    for (const Error& bad : job_.bad_variables) add(Grade::kFail, "variables", bad.detail, bad.hint);
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
    for (Finding& finding : check_devices(host_.devices, job_.ranks, job_.devices))
      findings_.push_back(std::move(finding));
    const DeviceInfo& devices = host_.devices;
    for (Finding& finding : check_gpus(devices.survey, {.ranks = job_.ranks,
                                                       .nodes = job_.nodes,
                                                       .has_gpus = !devices.nodes.empty(),
                                                       .visible = devices.ranks_take,
                                                       .core_nodes = devices.core_nodes}))
      findings_.push_back(std::move(finding));
    return std::move(findings_);
  }

 private:
  void add(Grade grade, const char* subject, std::string fact, std::string fix = {}) {
    findings_.push_back({grade, subject, std::move(fact), std::move(fix)});
  }

  void addresses() {
    const bool outward = std::any_of(host_.addresses.begin(), host_.addresses.end(),
                                     [](const std::string& host) { return !transport::is_loopback({.host = host}); });
    const std::string all = host_.addresses.empty() ? "none" : join(host_.addresses, ", ");
    if (!outward)
      return add(job_.nodes > 1 ? Grade::kFail : Grade::kOk, "addresses", all + ": only loopback",
                 job_.nodes > 1 ? "other hosts cannot reach this one: bring a network interface up (ip address)" : "");
    if (host_.name_means.empty())
      return add(Grade::kWarn, "addresses", all + "; the name " + host_.name + " resolves to nothing here",
                 "give addresses instead of names, or add the name to /etc/hosts");
    const bool trap = transport::is_loopback({.host = host_.name_means.front()});
    if (!trap)
      return add(Grade::kOk, "addresses",
                 all + "; the name " + host_.name + " is " + host_.name_means.front() + " here");
    if (job_.nodes > 1 && !host_.address_for_others.empty() && !host_.loopback_line.empty())
      return add(Grade::kOk, "addresses",
                 all + "; the name " + host_.name + " is " + host_.name_means.front() +
                     " here, so other hosts are given " + host_.address_for_others);
    const bool matters = job_.nodes > 1;
    add(matters ? Grade::kWarn : Grade::kOk, "addresses",
        all + "; the name " + host_.name + " is " + host_.name_means.front() + " here, which other hosts cannot reach" +
            (matters ? "" : " (no matter on one host)"),
        !matters ? ""
        : host_.loopback_line.empty()
            ? "give --master-addr as an address"
            : "change the line \"" + host_.loopback_line + "\", or give --master-addr as an address");
  }

  void cores() {
    const int usable = host_.cores_usable;
    std::string text = std::to_string(usable) + (usable == 1 ? " core for " : " cores for ") + of_ranks(job_.ranks);
    if (host_.cores_quota && *host_.cores_quota < host_.cores_online)
      text +=
          " (a cgroup gives " + std::to_string(*host_.cores_quota) + " of " + std::to_string(host_.cores_online) + ")";
    else if (usable < host_.cores_online)
      text += " (the affinity mask gives them, of " + std::to_string(host_.cores_online) + ")";
    if (job_.ranks > usable)
      return add(Grade::kWarn, "cores", text + ": ranks share cores, and each collective waits for all of them",
                 "tutti run -n " + std::to_string(usable) + ", or more cores for the job");
    add(Grade::kOk, "cores", text);
  }

  void blas() {
    const std::string best = launch::openblas_coretype(host_.cpu);
    if (!host_.openblas_trouble.empty())
      return add(Grade::kFail, "BLAS", "OpenBLAS " + host_.openblas_trouble + " when it was loaded",
                 job_.core_type.empty() ? "reinstall it (Debian: libopenblas0-pthread)"
                                        : "OPENBLAS_CORETYPE=" + job_.core_type + " is wrong for this CPU: unset it");
    if (host_.openblas.empty())
      return add(Grade::kOk, "BLAS", "no OpenBLAS in the usual folders; a program may bring its own");
    const std::string slow = launch::slowness_of_kernels(host_.openblas, host_.cpu);
    if (!slow.empty() && !job_.core_type.empty())
      return add(Grade::kWarn, "BLAS", "OpenBLAS runs its kernels for " + host_.openblas + ": " + slow,
                 "OPENBLAS_CORETYPE=" + job_.core_type + " selects them: unset it or set it to " + best);
    if (!slow.empty())
      return add(
          Grade::kWarn, "BLAS", "OpenBLAS takes this CPU for a " + host_.openblas + ": " + slow,
          "tutti run sets OPENBLAS_CORETYPE=" + best + "; set it yourself for programs that are started otherwise");
    add(Grade::kOk, "BLAS", "OpenBLAS runs its kernels for " + host_.openblas);
  }

  void threads() {
    const auto variable = [&](const std::string& name) {
      const auto at = job_.threads.find(name);
      return at == job_.threads.end() ? std::nullopt : std::optional(at->second);
    };
    const int cores = std::max(1, host_.cores_usable / std::max(1, job_.ranks));
    const std::string costs = launch::costly_threads(variable, cores);
    if (!costs.empty()) add(Grade::kWarn, "threads", costs, "unset the variable: tutti run then chooses its value");
  }

  void memory() {
    const std::uint64_t used = host_.memory_used.value_or(0);
    std::uint64_t room = host_.memory_available;
    std::string text = bytes_text(room) + " of " + bytes_text(host_.memory_total) + " available";
    if (host_.memory_limit && *host_.memory_limit < host_.memory_total) {
      room = std::min(room, *host_.memory_limit > used ? *host_.memory_limit - used : 0);
      text = bytes_text(room) + " left of the cgroup's " + bytes_text(*host_.memory_limit);
    }
    const std::uint64_t share = room / std::uint64_t(std::max(1, job_.ranks));
    if (job_.heap && *job_.heap > share)
      return add(Grade::kFail, "memory",
                 text + ", but " + of_ranks(job_.ranks) + " with a heap of " + bytes_text(*job_.heap) + " need " +
                     bytes_text(*job_.heap * std::uint64_t(job_.ranks)),
                 "fewer ranks, smaller batches, or more memory for the job");
    if (share < kLeastMemory)
      return add(Grade::kWarn, "memory", text + ": " + bytes_text(share) + " for each of " + of_ranks(job_.ranks),
                 "end other programs on this host, or start fewer ranks");
    add(Grade::kOk, "memory", text + ", " + bytes_text(share) + " a rank");
  }

  void open_files() {
    const std::uint64_t world = std::uint64_t(std::max(job_.world, job_.ranks));
    const std::uint64_t need = 256 + 4 * std::uint64_t(job_.ranks) + 2 * world;
    const auto& [soft, hard] = host_.files;
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
    const auto threads = std::uint64_t(std::max(1, host_.cores_usable / std::max(1, job_.ranks)));
    const std::uint64_t need = 16 + std::uint64_t(job_.ranks) * (kThreadsOfARank + threads);
    std::optional<std::uint64_t> room = host_.processes.soft;
    std::string whose = "ulimit -u";
    if (host_.tasks_limit) {
      const std::uint64_t used = host_.tasks_used.value_or(0);
      const std::uint64_t left = *host_.tasks_limit > used ? *host_.tasks_limit - used : 0;
      if (!room || left < *room) room = left, whose = "left of the cgroup's " + std::to_string(*host_.tasks_limit);
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
    const auto& soft = host_.locked.soft;
    const std::string text = soft ? bytes_text(*soft) : std::string("unlimited");
    if (host_.rdma && soft && *soft < kGiB)
      return add(Grade::kWarn, "locked memory", text + ", and this host has RDMA cards, which need theirs locked",
                 "ulimit -l unlimited (memlock in /etc/security/limits.conf), or NCCL and MPI fall back to TCP");
    add(Grade::kOk, "locked memory", text + (host_.rdma ? "" : "; nothing on this host needs it"));
  }

  void shared_memory_by_name() {
    if (!host_.shm_bytes) return;
    add(Grade::kOk, "/dev/shm",
        bytes_text(*host_.shm_bytes) + "; Tutti does not use it (its memory has no name), NCCL and MPI do");
  }

  void disks() {
    for (const DiskInfo& disk : host_.disks) {
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
    if (!host_.clock_synchronised) return add(Grade::kOk, "clock", "unknown whether it is synchronised");
    if (*host_.clock_synchronised) return add(Grade::kOk, "clock", "synchronised");
    add(job_.nodes > 1 ? Grade::kWarn : Grade::kOk, "clock",
        "not synchronised; Tutti compares no clocks of two hosts, but the times in logs may not match",
        job_.nodes > 1 ? "run an NTP client (Debian: systemd-timesyncd or chrony)" : "");
  }

  const HostInfo& host_;
  const PlannedJob& job_;
  std::vector<Finding> findings_;
};

// Allocates memory as the heap does: without a name, with its pages, sealed.
Finding try_memory() {
  const std::string size = bytes_text(kTrial);
  const auto failed = [&](const std::string& what) {
    const Error error = system_error(errno, what);
    return Finding{
        Grade::kFail, "heap", "no shared memory for ranks: " + to_string(error),
        "a seccomp profile, a memory limit or a very old kernel prevents it; TUTTI_TRANSPORT=tcp needs none"};
  };
  const Fd fd(::memfd_create("tutti-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd) return failed("memfd_create");
  if (const int trouble = ::posix_fallocate(fd.get(), 0, off_t(kTrial)); trouble != 0) {
    errno = trouble;
    return failed("taking " + size);
  }
  if (::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) return failed("sealing it");
  return {Grade::kOk, "heap", size + " of shared memory allocated and freed", ""};
}

Finding try_port(const std::string& host, int port, const char* whose, const char* option) {
  const transport::Address address{.host = host, .port = std::uint16_t(port)};
  const auto listening = listen(address);
  if (listening.ok()) return {Grade::kOk, "ports", to_string(address) + " is free (" + whose + ")", ""};
  const Error& error = listening.error();
  const bool taken = error.code == Code::kAddressInUse;
  return {Grade::kFail, "ports", to_string(error) + " (" + whose + ")",
          taken ? std::string("end the process that holds it, or choose another with ") + option
                : "give --master-addr as an address of this host"};
}

std::string gpu_count_text(int count) { return std::to_string(count) + (count == 1 ? " GPU" : " GPUs"); }

constexpr double kSlowShare = 0.5;  // of the median of all pairs
constexpr double kMuchLost = 0.2;   // the share of echoes above which heartbeats and TCP suffer
constexpr double kLateMost = 0.2;   // seconds one way
constexpr double kClocksApart = 1;  // seconds
constexpr const char* kFirewall =
    "let the hosts of a job talk on all ports to one another: ufw allow from SUBNET, a security group that allows "
    "itself, a Kubernetes NetworkPolicy";

std::string rate_text(double bytes_per_second) { return bytes_text(std::uint64_t(bytes_per_second)) + "/s"; }

template <class Add>
void judge_speed(const PairMeasure& m, double usual, const Add& add) {
  if (!m.bulk_trouble.empty())
    return add(
        Grade::kFail, "small messages pass, large ones do not: " + m.bulk_trouble,
        "a link between them has a smaller packet size (MTU): compare `ip link` on both, and see whether ping -M "
        "do -s 1472 passes");
  const std::string speed =
      fmt::format("{} one way, {} there, {} back", seconds_text(m.latency), rate_text(m.there), rate_text(m.back));
  const double least = std::min(m.there, m.back);
  if (least < kSlowShare * usual)
    return add(Grade::kWarn, speed + fmt::format(": {:.0f} % of the median of all pairs", 100 * least / usual),
               "check the cable, the negotiated speed (ethtool) and the route between these two");
  if (m.latency > kLateMost) return add(Grade::kWarn, speed, "a job between hosts so far apart waits most of its time");
  add(Grade::kOk, speed, "");
}

}  // namespace

std::vector<Finding> check_host(const HostInfo& host, const PlannedJob& job) { return HostChecks(host, job).run(); }

std::vector<Finding> try_host(const PlannedJob& job) {
  std::vector<Finding> findings = {try_memory()};
  for (const std::string& address : job.addresses) {
    findings.push_back(try_port(address, job.master_port, "MASTER_PORT of the program", "--master-port"));
    findings.push_back(try_port(address, job.store_port, "the store", "--store-port"));
  }
  return findings;
}

std::vector<Finding> check_devices(const DeviceInfo& devices, int ranks, std::optional<int> expected) {
  std::vector<Finding> findings;
  const auto add = [&](Grade grade, std::string fact, std::string fix = {}) {
    findings.push_back({grade, "devices", std::move(fact), std::move(fix)});
  };
  const int there = std::max({devices.on_bus, devices.in_driver, int(devices.nodes.size())});
  const int wanted = expected.value_or(0);
  if (there == 0 && !devices.visible.value_or(0)) {
    if (wanted > 0) {
      add(Grade::kFail, gpu_count_text(wanted) + " expected, none is on this host",
          "run where they are, or start the container with them (docker run --gpus all, a GPU resource in Kubernetes)");
    } else {
      add(Grade::kOk, "no GPU here; ranks compute on the CPU");
    }
    return findings;
  }
  if (devices.driver.empty() && devices.nodes.empty() && !devices.visible) {
    add(wanted > 0 ? Grade::kFail : Grade::kWarn,
        gpu_count_text(devices.on_bus) + " on the bus, but no NVIDIA driver is loaded",
        "install or load it (modprobe nvidia; nvidia-smi shows more)");
    return findings;
  }
  if (devices.in_driver > 0 && devices.on_bus > devices.in_driver) {
    add(Grade::kFail,
        gpu_count_text(devices.on_bus) + " on the bus, but the driver serves " + std::to_string(devices.in_driver) +
            ": one is lost",
        "dmesg | grep -i xid shows why; reset the GPU (nvidia-smi --gpu-reset) or restart the host, and keep jobs off "
        "it");
  }
  if (!devices.forbidden.empty())
    add(Grade::kFail, "this user may not open /dev/nvidia" + ranks_text(devices.forbidden),
        "join the group that owns it (ls -l /dev/nvidia*), or ask for the device in the job");
  if (!devices.visible) {
    add(wanted > 0 ? Grade::kFail : Grade::kWarn,
        gpu_count_text(there) + " here, but CUDA cannot use " + (there == 1 ? "it" : "them") + ": " +
            devices.runtime_trouble,
        "install a CUDA runtime (libcudart.so) that fits the driver, or set LD_LIBRARY_PATH to it");
    return findings;
  }
  const int visible = *devices.visible;
  const std::string hidden =
      devices.visible_variable ? " (CUDA_VISIBLE_DEVICES=" + *devices.visible_variable + ")" : std::string();
  if (wanted > visible) {
    add(Grade::kFail, gpu_count_text(wanted) + " expected, " + std::to_string(visible) + " visible" + hidden,
        devices.visible_variable ? "correct CUDA_VISIBLE_DEVICES: a wrong entry hides all that follow it"
                                 : "nvidia-smi -L lists what the driver has; the job or container may be given fewer");
  } else if (visible < ranks) {
    add(Grade::kWarn,
        std::to_string(ranks) + " ranks, but " + gpu_count_text(visible) + " visible" + hidden +
            ": ranks share a device, which NCCL refuses",
        "tutti run -n " + std::to_string(std::max(1, visible)) +
            (devices.visible_variable ? ", or show more with CUDA_VISIBLE_DEVICES" : ""));
  } else {
    add(Grade::kOk, gpu_count_text(visible) + " visible for " + std::to_string(ranks) +
                        (ranks == 1 ? " rank" : " ranks") + hidden +
                        (devices.driver.empty() ? "" : ", driver " + devices.driver));
  }
  return findings;
}

// The circle method: the last node stays, the others rotate by one position each turn. An odd number gets an imaginary
// node, whose partner rests.
std::vector<std::vector<std::pair<int, int>>> turns_of_pairs(int nodes) {
  const int even = nodes + nodes % 2;
  std::vector<std::vector<std::pair<int, int>>> turns;
  for (int turn = 0; turn + 1 < even; ++turn) {
    auto& pairs = turns.emplace_back();
    for (int i = 0; i < even / 2; ++i) {
      const int a = i == 0 ? even - 1 : (turn + i) % (even - 1), b = (turn + even - 1 - i) % (even - 1);
      if (std::max(a, b) < nodes) pairs.emplace_back(std::min(a, b), std::max(a, b));
    }
  }
  return turns;
}

std::vector<Finding> check_pairs(const std::vector<PairMeasure>& measures, const std::map<int, std::string>& hosts) {
  std::vector<double> rates;
  for (const PairMeasure& m : measures)
    if (m.there > 0 && m.back > 0) rates.push_back(std::min(m.there, m.back));
  const double usual = rates.size() > 2 ? median(rates) : 0;  // of two pairs none is known to be the slow one
  std::vector<Finding> findings;
  for (const PairMeasure& m : measures) {
    const std::string& from = hosts.at(m.from);
    const std::string& to = hosts.at(m.to);
    const std::string pair = from + " - " + to;
    const auto add = [&](Grade grade, std::string fact, std::string fix = {}) {
      findings.push_back({grade, pair, std::move(fact), std::move(fix)});
    };
    if (!m.trouble.empty()) add(Grade::kFail, from + " cannot reach " + to + ": " + m.trouble, kFirewall);
    if (!m.back_trouble.empty()) add(Grade::kFail, to + " cannot reach " + from + ": " + m.back_trouble, kFirewall);
    if (!m.trouble.empty()) continue;
    judge_speed(m, usual, add);
    if (m.datagrams_lost >= 1)
      add(Grade::kFail, "TCP passes, but no UDP datagram came back: nodes exchange heartbeats over UDP",
          "let the firewall pass UDP between the hosts of a job");
    else if (m.datagrams_lost >= kMuchLost)
      add(Grade::kWarn, fmt::format("{:.0f} % of the UDP datagrams were lost", 100 * m.datagrams_lost),
          "the network drops packets: check the cable, the switch and the error counters (ip -s link)");
    if (std::abs(m.clock_offset) - m.clock_error > kClocksApart)
      add(Grade::kWarn,
          fmt::format("the clock of {} is {} {} that of {}", to, seconds_text(std::abs(m.clock_offset)),
                      m.clock_offset > 0 ? "ahead of" : "behind", from),
          "run an NTP client on both; Tutti compares no clocks of two hosts, but the times in logs will not match");
  }
  return findings;
}

}  // namespace tutti::doctor
