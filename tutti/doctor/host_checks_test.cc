// Hosts that nobody has at hand, as values.
#include "tutti/doctor/host_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tutti/transport/socket.h"

namespace tutti {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::uint64_t kGiB = std::uint64_t(1) << 30;

HostFacts good_host() {
  HostFacts facts;
  facts.name = "node-a";
  facts.addresses = {"10.0.0.1", "127.0.0.1"};
  facts.name_means = {"10.0.0.1"};
  facts.cores_online = facts.cores_usable = 16;
  facts.cpu = {.avx2 = true, .fma = true};
  facts.openblas = "Haswell";
  facts.memory_total = 64 * kGiB, facts.memory_available = 60 * kGiB;
  facts.shm_bytes = kGiB;
  facts.files = {1024, 1048576};
  facts.locked = {8 << 20, 8 << 20};
  facts.clock_synchronised = true;
  facts.disks = {{.what = "temporary files", .path = "/tmp", .free = 100 * kGiB, .total = 200 * kGiB}};
  return facts;
}

const Finding& about(const std::vector<Finding>& findings, const std::string& subject) {
  static const Finding none;
  for (const Finding& finding : findings)
    if (finding.subject == subject) return finding;
  ADD_FAILURE() << "nothing is said about " << subject;
  return none;
}

Finding one(const HostFacts& facts, const JobWishes& wishes, const std::string& subject) {
  return about(check_host(facts, wishes), subject);
}

TEST(HostChecks, AGoodHostIsAllRight) {
  const auto findings = check_host(good_host(), {.ranks = 4, .world = 8, .nodes = 2});
  EXPECT_EQ(worst(findings), Grade::kOk) << to_text(findings);
  EXPECT_EQ(about(findings, "cores").fact, "16 cores for 4 ranks");
  EXPECT_EQ(about(findings, "addresses").fact, "10.0.0.1, 127.0.0.1; the name node-a is 10.0.0.1 here");
}

TEST(HostChecks, MoreRanksThanCores) {
  HostFacts facts = good_host();
  facts.cores_usable = 2, facts.cores_quota = 2;
  const Finding finding = one(facts, {.ranks = 4}, "cores");
  EXPECT_EQ(finding.grade, Grade::kWarn);
  EXPECT_EQ(finding.fact,
            "2 cores for 4 ranks (a cgroup gives 2 of 16): ranks take turns, and each meeting waits for all of them");
  EXPECT_THAT(finding.fix, HasSubstr("tutti run -n 2"));
}

TEST(HostChecks, ANameThatIsLoopbackMattersOnSeveralHosts) {
  HostFacts facts = good_host();
  facts.name_means = {"127.0.1.1"};
  facts.loopback_line = "127.0.1.1 node-a (line 2 of /etc/hosts)";
  EXPECT_EQ(one(facts, {.nodes = 1}, "addresses").grade, Grade::kOk);
  const Finding finding = one(facts, {.nodes = 2}, "addresses");
  EXPECT_EQ(finding.grade, Grade::kWarn);
  EXPECT_THAT(finding.fact, HasSubstr("the name node-a is 127.0.1.1 here, which other hosts cannot reach"));
  EXPECT_THAT(finding.fix, HasSubstr("change the line \"127.0.1.1 node-a (line 2 of /etc/hosts)\""));
}

TEST(HostChecks, OnlyLoopback) {
  HostFacts facts = good_host();
  facts.addresses = {"127.0.0.1"};
  EXPECT_EQ(one(facts, {.nodes = 1}, "addresses").grade, Grade::kOk);
  const Finding finding = one(facts, {.nodes = 2}, "addresses");
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_THAT(finding.fix, HasSubstr("bring a network interface up"));
}

TEST(HostChecks, ANameThatMeansNothing) {
  HostFacts facts = good_host();
  facts.name_means = {};
  EXPECT_THAT(one(facts, {}, "addresses").fact, HasSubstr("the name node-a resolves to nothing here"));
}

TEST(HostChecks, FewOpenFiles) {
  HostFacts facts = good_host();
  EXPECT_EQ(one(facts, {.ranks = 8, .world = 1024}, "open files").fact,
            "1024 (hard limit 1048576), 2336 needed; tutti run raises the limit");
  facts.files = {1024, 2000};
  const Finding finding = one(facts, {.ranks = 8, .world = 1024}, "open files");
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_THAT(finding.fix, HasSubstr("raise the hard limit"));
}

TEST(HostChecks, FewProcesses) {
  HostFacts facts = good_host();
  facts.tasks_limit = 40, facts.tasks_used = 10;
  const Finding finding = one(facts, {.ranks = 4}, "processes");
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_EQ(finding.fact, "30 (left of the cgroup's 40), 48 needed with their threads");
  EXPECT_THAT(finding.fix, HasSubstr("--pids-limit"));
  facts.tasks_limit = std::nullopt;
  facts.processes.soft = 20;
  EXPECT_THAT(one(facts, {.ranks = 4}, "processes").fix, HasSubstr("ulimit -u"));
}

TEST(HostChecks, MemoryForTheHeap) {
  HostFacts facts = good_host();
  EXPECT_EQ(one(facts, {.ranks = 4, .heap = 10 * kGiB}, "memory").grade, Grade::kOk);
  facts.memory_limit = 24 * kGiB, facts.memory_used = 4 * kGiB;
  const Finding finding = one(facts, {.ranks = 4, .heap = 10 * kGiB}, "memory");
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_EQ(finding.fact, "20 GiB left of the cgroup's 24 GiB, but 4 ranks with a heap of 10 GiB need 40 GiB");
  facts.memory_used = 24 * kGiB;
  EXPECT_EQ(one(facts, {.ranks = 4}, "memory").grade, Grade::kWarn);
}

TEST(HostChecks, OpenBlasThatMisjudgesTheCpu) {
  HostFacts facts = good_host();
  facts.openblas = "Prescott";
  const Finding finding = one(facts, {}, "BLAS");
  EXPECT_EQ(finding.grade, Grade::kWarn);
  EXPECT_EQ(finding.fact, "OpenBLAS takes this CPU for a Prescott: up to 5 times slower");
  EXPECT_THAT(finding.fix, HasSubstr("OPENBLAS_CORETYPE=Haswell"));
  EXPECT_THAT(one(facts, {.core_type = "Prescott"}, "BLAS").fix, HasSubstr("OPENBLAS_CORETYPE=Prescott asks for them"));
  facts.openblas_trouble = "was killed by SIGILL (illegal instruction)";
  const Finding dead = one(facts, {.core_type = "SkylakeX"}, "BLAS");
  EXPECT_EQ(dead.grade, Grade::kFail);
  EXPECT_THAT(dead.fix, HasSubstr("OPENBLAS_CORETYPE=SkylakeX is wrong for this CPU"));
}

TEST(HostChecks, AVariableThatChoosesNarrowKernelsOrOtherThreads) {
  HostFacts facts = good_host();
  facts.cpu.avx512f = facts.cpu.avx512dq = facts.cpu.avx512bw = facts.cpu.avx512vl = facts.cpu.avx512cd = true;
  facts.openblas = "Haswell";
  const Finding kernels = one(facts, {.core_type = "Haswell"}, "BLAS");
  EXPECT_EQ(kernels.grade, Grade::kWarn);
  EXPECT_EQ(kernels.fact, "OpenBLAS runs its kernels for Haswell: 1.4 to 1.7 times slower");
  facts.cores_usable = 8;
  const Finding threads = one(facts, {.ranks = 4, .threads = {{"OMP_NUM_THREADS", "8"}}}, "threads");
  EXPECT_EQ(threads.grade, Grade::kWarn);
  EXPECT_EQ(threads.fact, "OMP_NUM_THREADS is 8, more than the 2 cores of a rank");
}

TEST(HostChecks, LockedMemoryMattersToRdma) {
  HostFacts facts = good_host();
  EXPECT_EQ(one(facts, {}, "locked memory").grade, Grade::kOk);
  facts.rdma = true;
  EXPECT_THAT(one(facts, {}, "locked memory").fix, HasSubstr("ulimit -l unlimited"));
}

TEST(HostChecks, Disks) {
  HostFacts facts = good_host();
  facts.disks[0].free = kGiB / 2;
  EXPECT_EQ(one(facts, {}, "disk").grade, Grade::kWarn);
  facts.disks[0].trouble = "Read-only file system";
  const Finding finding = one(facts, {}, "disk");
  EXPECT_EQ(finding.grade, Grade::kFail);
  EXPECT_EQ(finding.fact, "/tmp (temporary files): no file can be made there: Read-only file system");
}

TEST(HostChecks, AClockThatNobodySets) {
  HostFacts facts = good_host();
  facts.clock_synchronised = false;
  EXPECT_EQ(one(facts, {.nodes = 1}, "clock").grade, Grade::kOk);
  EXPECT_THAT(one(facts, {.nodes = 2}, "clock").fix, HasSubstr("NTP"));
}

TEST(HostChecks, APortThatIsTaken) {
  const auto holder = listen({.host = "127.0.0.1"});
  const auto findings = try_host({.addresses = {"127.0.0.1"}, .master_port = holder->address.port, .store_port = 0});
  EXPECT_EQ(about(findings, "heap").grade, Grade::kOk);
  const Finding& port = about(findings, "ports");
  EXPECT_EQ(port.grade, Grade::kFail);
  EXPECT_THAT(port.fact, AllOf(HasSubstr("AddressInUse"), HasSubstr(std::to_string(holder->address.port)),
                               HasSubstr("doctor_test")));
  EXPECT_THAT(port.fix, HasSubstr("choose another with --master-port"));
}

// A folder for one test.
class Files : public ::testing::Test {
 protected:
  Files() {
    std::string pattern = std::filesystem::temp_directory_path() / "tutti-doctor-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
  }
  ~Files() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + path).parent_path());
    std::ofstream(root_ + "/" + path) << text;
  }
  std::string root_;
};

TEST_F(Files, LimitsOfCgroupsAreTheSmallestOnTheWayUp) {
  const auto memory = [&](const std::string& self) {
    return cgroup_number(self, root_, "memory", "memory.limit_in_bytes", "memory.max");
  };
  write("memory/a/b/memory.limit_in_bytes", "9223372036854771712\n");  // no limit
  write("memory/a/memory.limit_in_bytes", "4096\n");
  EXPECT_EQ(memory("3:memory:/a/b\n"), 4096u);
  write("a/memory.max", "max\n");
  EXPECT_EQ(memory("0::/a\n"), std::nullopt);
  write("a/memory.max", "8192\n");
  EXPECT_EQ(memory("0::/a\n"), 8192u);
  EXPECT_EQ(memory("0::/not/shown/here\n"), std::nullopt);
  write("memory.max", "100\n");  // a container sees its own group as the root
  EXPECT_EQ(memory("0::/not/shown/here\n"), 100u);
  EXPECT_EQ(memory("broken"), std::nullopt);
}

TEST(Meminfo, IsRead) {
  EXPECT_EQ(meminfo_bytes("MemTotal:       24000 kB\nMemAvailable:   100 kB\n", "MemAvailable"), 102400u);
  EXPECT_EQ(meminfo_bytes("MemTotal:       24000 kB\n", "MemAvailable"), 0u);
}

}  // namespace
}  // namespace tutti
