// Two hosts on one machine: network namespaces with a cable between them, each with an /etc/hosts of its own. Needs no
// privileges where user namespaces are allowed; where they are not, the tests say so and are skipped.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "tests/harness/joining.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::Ranks;
using testing::Report;
using testing::Start;

constexpr const char* kAddress[] = {"10.77.0.1", "10.77.0.2"};

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text << std::flush;
  return file.good();
}

class TwoHosts : public ::testing::Test {
 protected:
  void SetUp() override {
    const uid_t uid = ::getuid();
    const gid_t gid = ::getgid();
    hosts_[0] = hold([=] {
      if (::unshare(CLONE_NEWUSER | CLONE_NEWNET | CLONE_NEWNS) != 0) return false;
      write_file("/proc/self/setgroups", "deny");
      return write_file("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1") &&
             write_file("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1");
    });
    if (IsSkipped()) return;
    hosts_[1] = hold([this] { return enter_namespace(0, "user") && ::unshare(CLONE_NEWNET | CLONE_NEWNS) == 0; });
    if (IsSkipped()) return;
    const std::string peer = std::to_string(ranks_.pid(hosts_[1]));
    shell(0, "ip link add cable type veth peer name cable netns " + peer);
    for (const int host : {0, 1})
      shell(host, "ip link set lo up && ip addr add " + std::string(kAddress[host]) +
                      "/24 dev cable && ip link set cable up");
  }

  // A process that keeps a host's namespaces open.
  int hold(const std::function<bool()>& make) {
    const int index = ranks_.start_helper([&](int out) {
      const bool made = make();
      // Under TSan every process has a second thread, and then the system refuses with EINVAL.
      const std::string line =
          made ? "ok\n"
               : std::string(errno == EINVAL ? "this process has threads (TSan?)" : std::strerror(errno)) + "\n";
      if (::write(out, line.data(), line.size()) > 0) ::pause();
    });
    const std::string answer = ranks_.read_line(index);
    if (answer != "ok") skip("this system lets us make no namespaces: " + answer);
    return index;
  }
  void skip(const std::string& why) { GTEST_SKIP() << why; }

  bool enter_namespace(int host, const std::string& kind) const {
    const std::string path = "/proc/" + std::to_string(ranks_.pid(hosts_[host])) + "/ns/" + kind;
    const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    return fd && ::setns(fd.get(), 0) == 0;
  }
  // Makes the calling process a process of the host, for good.
  void enter(int host) const {
    const Fd user(
        ::open(("/proc/" + std::to_string(ranks_.pid(hosts_[0])) + "/ns/user").c_str(), O_RDONLY | O_CLOEXEC));
    const std::string own = "/proc/" + std::to_string(ranks_.pid(hosts_[host])) + "/ns/";
    const Fd net(::open((own + "net").c_str(), O_RDONLY | O_CLOEXEC)),
        mount(::open((own + "mnt").c_str(), O_RDONLY | O_CLOEXEC));
    if (::setns(user.get(), CLONE_NEWUSER) != 0 || ::setns(net.get(), CLONE_NEWNET) != 0 ||
        ::setns(mount.get(), CLONE_NEWNS) != 0) {
      std::perror("cannot enter the namespaces of a host");
      ::_exit(3);
    }
  }
  void shell(int host, const std::string& command) {
    const int index = ranks_.start_helper([&](int out) {
      enter(host);
      ::setenv("PATH", "/usr/sbin:/usr/bin:/sbin:/bin", 1);
      if (std::system(("{ " + command + "; } 2>&1").c_str()) == 0 && ::write(out, "ok\n", 3) < 0) ::_exit(3);
    });
    if (ranks_.read_line(index) != "ok") skip("cannot lay a cable between two namespaces with \"" + command + "\"");
  }

  Start on(int host, Environment environment, const std::string& hosts_file = {}) {
    environment.insert({"TUTTI_SECRET", "swordfish"});
    const std::string path = ranks_.folder() + "/hosts-" + std::to_string(files_++);
    if (!hosts_file.empty()) write_file(path, hosts_file);
    return {environment, {.timeout = 60s}, [this, host, hosts_file, path] {
              enter(host);
              if (!hosts_file.empty() && ::mount(path.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) != 0)
                std::perror("cannot bind /etc/hosts");
            }};
  }
  static Environment by_hand(int rank, int world_size, const std::string& master) {
    return {{"RANK", std::to_string(rank)},
            {"WORLD_SIZE", std::to_string(world_size)},
            {"MASTER_ADDR", master},
            {"MASTER_PORT", "29500"}};
  }
  static Environment with(Environment environment, const Environment& more) {
    environment.insert(more.begin(), more.end());
    return environment;
  }

  Ranks ranks_;
  int hosts_[2] = {};
  int files_ = 0;
};

TEST_F(TwoHosts, JoinAndAdvertiseTheAddressThatReachedTheMaster) {
  const auto reports = ranks_.run({on(0, by_hand(0, 4, kAddress[0])), on(0, by_hand(1, 4, kAddress[0])),
                                   on(1, by_hand(2, 4, kAddress[0])), on(1, by_hand(3, 4, kAddress[0]))});
  for (const Report& report : reports) {
    ASSERT_TRUE(report.ok) << report.error << report.log;
    EXPECT_EQ(report.extra, "met");
    EXPECT_EQ(report.local_host, kAddress[report.rank / 2]);
  }
}

TEST_F(TwoHosts, TorchrunMeetsAtADerivedPort) {
  const Environment torchrun = {{"TORCHELASTIC_RUN_ID", "r"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}};
  const auto reports = ranks_.run(
      {on(0, with(by_hand(0, 2, kAddress[0]), torchrun)), on(1, with(by_hand(1, 2, kAddress[0]), torchrun))});
  for (const Report& report : reports) {
    ASSERT_TRUE(report.ok) << report.error << report.log;
    EXPECT_THAT(report.store_address, HasSubstr(std::string(kAddress[0]) + ":2"));
    EXPECT_EQ(report.store_address.find(":29500"), std::string::npos);
  }
}

TEST_F(TwoHosts, SlurmMeetsAtTheFirstHostOfItsList) {
  const auto task = [](const char* rank) {
    return Environment{{"SLURM_JOB_ID", "812"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_PROCID", rank},
                       {"SLURM_NTASKS", "2"},
                       {"SLURM_LOCALID", "0"},
                       {"SLURM_NODEID", rank},
                       {"SLURM_STEP_NUM_NODES", "2"},
                       {"SLURM_STEP_TASKS_PER_NODE", "1(x2)"},
                       {"SLURM_STEP_NODELIST", "node[08-09]"}};
  };
  const std::string hosts = "127.0.0.1 localhost\n10.77.0.1 node08\n10.77.0.2 node09\n";
  for (const Report& report : ranks_.run({on(0, task("0"), "127.0.1.1 node08\n" + hosts), on(1, task("1"), hosts)})) {
    ASSERT_TRUE(report.ok) << report.error << report.log;
    EXPECT_EQ(report.local_host, kAddress[report.rank]);
    EXPECT_EQ(report.started_by, "srun");
  }
}

TEST_F(TwoHosts, TheTrapOf127011ShowsTheLineToChange) {
  const auto report = ranks_
                          .run({on(0, with(by_hand(0, 2, "node-a"), {{"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}}),
                                   "127.0.0.1 localhost\n127.0.1.1 node-a\n")})
                          .front();
  EXPECT_THAT(report.error,
              HasSubstr("Usage: join, rank 0: rank 0 would advertise the loopback address node-a, which is 127.0.1.1 "
                        "here (MASTER_ADDR and "
                        "MASTER_PORT), which the ranks on other hosts cannot reach (hint: change the line \"127.0.1.1 "
                        "node-a (line 2 of "
                        "/etc/hosts)\", or give an address that they can reach; this machine has 10.77.0.1"));
}

TEST_F(TwoHosts, TheTrapByHandIsAWarningAndAnUnreachableMaster) {
  Start first = on(0, by_hand(0, 2, "node-a"), "127.0.0.1 localhost\n127.0.1.1 node-a\n");
  Start second = on(1, by_hand(1, 2, "node-a"), "127.0.0.1 localhost\n10.77.0.1 node-a\n");
  first.options.timeout = second.options.timeout = 1500ms;
  const auto reports = ranks_.run({first, second});
  EXPECT_THAT(reports[0].log, HasSubstr("rank 0 serves at node-a, which is 127.0.1.1 here: ranks on other machines "
                                        "cannot reach it, because of the line "
                                        "\"127.0.1.1 node-a (line 2 of /etc/hosts)\""));
  EXPECT_THAT(reports[0].error, HasSubstr("rank 1 of 2 did not come"));
  EXPECT_THAT(reports[1].error, AllOf(HasSubstr("Unreachable: join, rank 1: cannot connect to 10.77.0.1:29500"),
                                      HasSubstr("Connection refused")));
}

}  // namespace
}  // namespace tutti
