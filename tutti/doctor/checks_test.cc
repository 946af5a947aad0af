// Hosts as values.
#include "tutti/doctor/checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tutti/transport/socket.h"

namespace tutti::doctor {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t(1) << 30;

HostInfo good_host() {
  HostInfo host;
  host.name = "node-a";
  host.addresses = {"10.0.0.1", "127.0.0.1"};
  host.name_means = {"10.0.0.1"};
  host.cores_online = host.cores_usable = 16;
  host.cpu = {.avx2 = true, .fma = true};
  host.openblas = "Haswell";
  host.memory_total = 64 * kGiB, host.memory_available = 60 * kGiB;
  host.shm_bytes = kGiB;
  host.files = {1024, 1048576};
  host.locked = {8 << 20, 8 << 20};
  host.clock_synchronised = true;
  host.disks = {{.what = "temporary files", .path = "/tmp", .free = 100 * kGiB, .total = 200 * kGiB}};
  return host;
}

const Finding& about(const std::vector<Finding>& findings, const std::string& subject) {
  static const Finding none;
  for (const Finding& finding : findings)
    if (finding.subject == subject) return finding;
  ADD_FAILURE() << "nothing is said about " << subject;
  return none;
}

Finding one(const HostInfo& host, const PlannedJob& job, const std::string& subject) {
  return about(check_host(host, job), subject);
}

TEST(HostChecks, AGoodHostIsAllRight) {
  const auto findings = check_host(good_host(), {.ranks = 4, .world = 8, .nodes = 2});
  EXPECT_EQ(worst(findings), Grade::kOk) << to_text(findings);
  EXPECT_EQ(about(findings, "cores").fact, "16 cores for 4 ranks");
  EXPECT_EQ(about(findings, "addresses").fact, "10.0.0.1, 127.0.0.1; the name node-a is 10.0.0.1 here");
}

TEST(HostChecks, MoreRanksThanCores) {
  HostInfo host = good_host();
  host.cores_usable = 2, host.cores_quota = 2;
  const Finding finding = one(host, {.ranks = 4}, "cores");
  EXPECT_EQ(finding.grade, Grade::kWarn);
  EXPECT_EQ(
      finding.fact,
      "2 cores for 4 ranks (a cgroup gives 2 of 16): ranks share cores, and each collective waits for all of them");
  EXPECT_THAT(finding.fix, HasSubstr("tutti run -n 2"));
}

TEST(HostChecks, ANameThatIsLoopbackMattersOnSeveralHosts) {
  HostInfo host = good_host();
  host.name_means = {"127.0.1.1"};
  host.loopback_line = "127.0.1.1 node-a (line 2 of /etc/hosts)";
  EXPECT_EQ(one(host, {.nodes = 1}, "addresses").grade, Grade::kOk);
  const Finding finding = one(host, {.nodes = 2}, "addresses");
  EXPECT_EQ(finding.grade, Grade::kWarn);
  EXPECT_THAT(finding.fact, HasSubstr("the name node-a is 127.0.1.1 here, which other hosts cannot reach"));
  EXPECT_THAT(finding.fix, HasSubstr("change the line \"127.0.1.1 node-a (line 2 of /etc/hosts)\""));
  host.address_for_others = "10.0.0.1";
  const Finding replaced = one(host, {.nodes = 2}, "addresses");
  EXPECT_EQ(replaced.grade, Grade::kOk);
  EXPECT_THAT(replaced.fact, HasSubstr("the name node-a is 127.0.1.1 here, so other hosts are given 10.0.0.1"));
}

TEST(HostChecks, OnlyLoopback) {
  HostInfo host = good_host();
  host.addresses = {"127.0.0.1"};
  EXPECT_EQ(one(host, {.nodes = 1}, "addresses").grade, Grade::kOk);
  const Finding finding = one(host, {.nodes = 2}, "addresses");
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_THAT(finding.fix, HasSubstr("bring a network interface up"));
}

TEST(HostChecks, ANameThatMeansNothing) {
  HostInfo host = good_host();
  host.name_means = {};
  EXPECT_THAT(one(host, {}, "addresses").fact, HasSubstr("the name node-a resolves to nothing here"));
}

TEST(HostChecks, FewOpenFiles) {
  HostInfo host = good_host();
  EXPECT_EQ(one(host, {.ranks = 8, .world = 1024}, "open files").fact,
            "1024 (hard limit 1048576), 2336 needed; tutti run raises the limit");
  host.files = {1024, 2000};
  const Finding finding = one(host, {.ranks = 8, .world = 1024}, "open files");
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_THAT(finding.fix, HasSubstr("raise the hard limit"));
}

TEST(HostChecks, FewProcesses) {
  HostInfo host = good_host();
  host.tasks_limit = 40, host.tasks_used = 10;
  const Finding finding = one(host, {.ranks = 4}, "processes");
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_EQ(finding.fact, "30 (left of the cgroup's 40), 48 needed with their threads");
  EXPECT_THAT(finding.fix, HasSubstr("--pids-limit"));
  host.tasks_limit = std::nullopt;
  host.processes.soft = 20;
  EXPECT_THAT(one(host, {.ranks = 4}, "processes").fix, HasSubstr("ulimit -u"));
}

TEST(HostChecks, MemoryForTheHeap) {
  HostInfo host = good_host();
  EXPECT_EQ(one(host, {.ranks = 4, .heap = 10 * kGiB}, "memory").grade, Grade::kOk);
  host.memory_limit = 24 * kGiB, host.memory_used = 4 * kGiB;
  const Finding finding = one(host, {.ranks = 4, .heap = 10 * kGiB}, "memory");
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_EQ(finding.fact, "20 GiB left of the cgroup's 24 GiB, but 4 ranks with a heap of 10 GiB need 40 GiB");
  host.memory_used = 24 * kGiB;
  EXPECT_EQ(one(host, {.ranks = 4}, "memory").grade, Grade::kWarn);
}

TEST(HostChecks, OpenBlasThatMisjudgesTheCpu) {
  HostInfo host = good_host();
  host.openblas = "Prescott";
  const Finding finding = one(host, {}, "BLAS");
  EXPECT_EQ(finding.grade, Grade::kWarn);
  EXPECT_EQ(finding.fact, "OpenBLAS takes this CPU for a Prescott: up to 5 times slower");
  EXPECT_THAT(finding.fix, HasSubstr("OPENBLAS_CORETYPE=Haswell"));
  EXPECT_THAT(one(host, {.core_type = "Prescott"}, "BLAS").fix, HasSubstr("OPENBLAS_CORETYPE=Prescott selects them"));
  host.openblas_trouble = "was killed by SIGILL (illegal instruction)";
  const Finding dead = one(host, {.core_type = "SkylakeX"}, "BLAS");
  EXPECT_EQ(dead.grade, Grade::kFail);
  EXPECT_THAT(dead.fix, HasSubstr("OPENBLAS_CORETYPE=SkylakeX is wrong for this CPU"));
}

TEST(HostChecks, AVariableThatChoosesNarrowKernelsOrOtherThreads) {
  HostInfo host = good_host();
  host.cpu.avx512f = host.cpu.avx512dq = host.cpu.avx512bw = host.cpu.avx512vl = host.cpu.avx512cd = true;
  host.openblas = "Haswell";
  const Finding kernels = one(host, {.core_type = "Haswell"}, "BLAS");
  EXPECT_EQ(kernels.grade, Grade::kWarn);
  EXPECT_EQ(kernels.fact, "OpenBLAS runs its kernels for Haswell: 1.4 to 1.7 times slower");
  host.cores_usable = 8;
  const Finding threads = one(host, {.ranks = 4, .threads = {{"OMP_NUM_THREADS", "8"}}}, "threads");
  EXPECT_EQ(threads.grade, Grade::kWarn);
  EXPECT_EQ(threads.fact, "OMP_NUM_THREADS is 8, more than the 2 cores of a rank");
}

TEST(HostChecks, LockedMemoryMattersToRdma) {
  HostInfo host = good_host();
  EXPECT_EQ(one(host, {}, "locked memory").grade, Grade::kOk);
  host.rdma = true;
  EXPECT_THAT(one(host, {}, "locked memory").fix, HasSubstr("ulimit -l unlimited"));
}

TEST(HostChecks, Disks) {
  HostInfo host = good_host();
  host.disks[0].free = kGiB / 2;
  EXPECT_EQ(one(host, {}, "disk").grade, Grade::kWarn);
  host.disks[0].trouble = "Read-only file system";
  const Finding finding = one(host, {}, "disk");
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_EQ(finding.fact, "/tmp (temporary files): no file can be made there: Read-only file system");
}

TEST(HostChecks, AnUnsynchronisedClockMattersForSeveralNodes) {
  HostInfo host = good_host();
  host.clock_synchronised = false;
  EXPECT_EQ(one(host, {.nodes = 1}, "clock").grade, Grade::kOk);
  EXPECT_THAT(one(host, {.nodes = 2}, "clock").fix, HasSubstr("NTP"));
}

TEST(HostChecks, APortThatIsTaken) {
  const auto holder = transport::listen({.host = "127.0.0.1"});
  const auto findings = try_host({.addresses = {"127.0.0.1"}, .master_port = holder->address.port, .store_port = 0});
  EXPECT_EQ(about(findings, "heap").grade, Grade::kOk);
  const Finding& port = about(findings, "ports");
  EXPECT_EQ(port.grade, Grade::kFail);
  EXPECT_THAT(port.fact, AllOf(HasSubstr("AddressInUse"), HasSubstr(std::to_string(holder->address.port)),
                               HasSubstr("doctor_test")));
  EXPECT_THAT(port.fix, HasSubstr("choose another with --master-port"));
}

DeviceInfo four_devices() {
  return {.on_bus = 4, .in_driver = 4, .nodes = {0, 1, 2, 3}, .driver = "580.1", .visible = 4};
}

Finding only_device(const DeviceInfo& host, int ranks, std::optional<int> expected = {}) {
  const auto findings = check_devices(host, ranks, expected);
  EXPECT_EQ(findings.size(), 1u) << to_text(findings);
  return findings.empty() ? Finding() : findings.front();
}

TEST(Devices, OneForEachRank) {
  EXPECT_EQ(only_device(four_devices(), 4),
            (Finding{Grade::kOk, "devices", "4 GPUs visible for 4 ranks, driver 580.1", ""}));
}

TEST(Devices, NoneIsNoTroubleUnlessExpected) {
  EXPECT_EQ(only_device({}, 4).grade, Grade::kOk);
  const Finding finding = only_device({}, 4, 4);
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_EQ(finding.fact, "4 GPUs expected, none is on this host");
}

TEST(Devices, FewerVisibleThanRanks) {
  DeviceInfo host = four_devices();
  host.visible = 2, host.visible_variable = "0,1";
  const Finding finding = only_device(host, 4);
  EXPECT_EQ(finding.grade, Grade::kWarn);
  EXPECT_EQ(finding.fact,
            "4 ranks, but 2 GPUs visible (CUDA_VISIBLE_DEVICES=0,1): ranks share a device, which NCCL refuses");
  EXPECT_THAT(only_device(host, 2, 4).fix, HasSubstr("correct CUDA_VISIBLE_DEVICES"));
}

TEST(Devices, ALostOne) {
  DeviceInfo host = four_devices();
  host.in_driver = 3, host.visible = 3;
  const auto findings = check_devices(host, 3, 4);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].grade, Grade::kFail);
  EXPECT_EQ(findings[0].fact, "4 GPUs on the bus, but the driver serves 3: one is lost");
  EXPECT_THAT(findings[0].fix, HasSubstr("dmesg | grep -i xid"));
  EXPECT_EQ(findings[1].fact, "4 GPUs expected, 3 visible");
}

TEST(Devices, NoDriver) {
  const Finding finding = only_device({.on_bus = 1, .runtime_trouble = "there is no libcudart"}, 1, 1);
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_EQ(finding.fact, "1 GPU on the bus, but no NVIDIA driver is loaded");
}

TEST(Devices, ThatThisUserMayNotOpen) {
  DeviceInfo host = four_devices();
  host.nodes = {0, 1}, host.forbidden = {2, 3}, host.visible = 2;
  EXPECT_EQ(check_devices(host, 2, {})[0].fact, "this user may not open /dev/nvidia2, 3");
}

TEST(Devices, NoRuntime) {
  DeviceInfo host = four_devices();
  host.visible = std::nullopt, host.runtime_trouble = "there is no libcudart.so";
  const Finding finding = only_device(host, 4);
  EXPECT_EQ(finding.grade, Grade::kWarn);
  EXPECT_EQ(finding.fact, "4 GPUs here, but CUDA cannot use them: there is no libcudart.so");
}

TEST(Turns, PairAllNodesOnceAndNoNodeTwiceInATurn) {
  for (int nodes = 1; nodes <= 9; ++nodes) {
    std::set<std::pair<int, int>> met;
    for (const auto& turn : turns_of_pairs(nodes)) {
      std::set<int> busy;
      for (const auto& [a, b] : turn) {
        EXPECT_LT(a, b);
        EXPECT_TRUE(met.emplace(a, b).second);
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second);
      }
    }
    EXPECT_EQ(met.size(), std::size_t(nodes * (nodes - 1) / 2));
    EXPECT_LE(turns_of_pairs(nodes).size(), std::size_t(nodes));
  }
}

PairMeasure good(int from, int to) {
  return {.from = from,
          .to = to,
          .latency = 50e-6,
          .there = 1 << 30,
          .back = 1 << 30,
          .datagram_latency = 60e-6,
          .datagrams_lost = 0,
          .clock_offset = 0.001,
          .clock_error = 0.0001};
}
const std::map<int, std::string> kHosts = {{0, "a"}, {1, "b"}, {2, "c"}};

Finding judged(const PairMeasure& measure) {
  const auto findings = check_pairs({measure}, kHosts);
  return findings.empty() ? Finding() : findings.back();
}

TEST(Pairs, AGoodOne) {
  EXPECT_EQ(judged(good(0, 1)), (Finding{Grade::kOk, "a - b", "50 us one way, 1 GiB/s there, 1 GiB/s back", ""}));
}

TEST(Pairs, NoWay) {
  PairMeasure measure = good(0, 1);
  measure.trouble = "Unreachable: refused";
  EXPECT_EQ(judged(measure).fact, "a cannot reach b: Unreachable: refused");
  EXPECT_THAT(judged(measure).fix, HasSubstr("let the hosts of a job talk on all ports"));
  measure = good(0, 1);
  measure.back_trouble = "Timeout: nothing";
  const auto findings = check_pairs({measure}, kHosts);
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[0].fact, "b cannot reach a: Timeout: nothing");
  EXPECT_EQ(findings[1].grade, Grade::kOk);
}

TEST(Pairs, LargeMessagesThatVanish) {
  PairMeasure measure = good(0, 1);
  measure.bulk_trouble = "Timeout: after 5 s";
  EXPECT_EQ(judged(measure).grade, Grade::kFail);
  EXPECT_EQ(judged(measure).fact, "small messages pass, large ones do not: Timeout: after 5 s");
  EXPECT_THAT(judged(measure).fix, HasSubstr("MTU"));
}

TEST(Pairs, ASlowOneIsFoundByComparison) {
  PairMeasure slow = good(1, 2);
  slow.there = 100 << 20;
  const auto findings = check_pairs({good(0, 1), good(0, 2), slow}, kHosts);
  EXPECT_EQ(findings[0].grade, Grade::kOk);
  EXPECT_EQ(findings[2].grade, Grade::kWarn);
  EXPECT_THAT(findings[2].fact, HasSubstr("10 % of the median of all pairs"));
  EXPECT_THAT(findings[2].fix, HasSubstr("ethtool"));
}

TEST(Pairs, Datagrams) {
  PairMeasure measure = good(0, 1);
  measure.datagrams_lost = 0.3;
  EXPECT_EQ(judged(measure).fact, "30 % of the UDP datagrams were lost");
  measure.datagrams_lost = 1;
  EXPECT_EQ(judged(measure).grade, Grade::kFail);
  EXPECT_EQ(judged(measure).fact, "TCP passes, but no UDP datagram came back: nodes exchange heartbeats over UDP");
}

TEST(Pairs, ClocksThatDiffer) {
  PairMeasure measure = good(0, 1);
  measure.clock_offset = -3600;
  EXPECT_EQ(judged(measure).grade, Grade::kWarn);
  EXPECT_EQ(judged(measure).fact, "the clock of b is 1 h 0 min behind that of a");
  measure.clock_offset = 3, measure.clock_error = 2.5;  // it may be less than a second
  EXPECT_EQ(check_pairs({measure}, kHosts).size(), 1u);
}

TEST(Pairs, HalfAWorldApart) {
  PairMeasure measure = good(0, 1);
  measure.latency = 0.3;
  EXPECT_EQ(judged(measure).grade, Grade::kWarn);
  EXPECT_THAT(judged(measure).fix, HasSubstr("so far apart"));
}

}  // namespace

}  // namespace tutti::doctor
