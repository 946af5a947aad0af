// join() on two hosts: forked ranks that meet by hand, under torchrun and under Slurm, and the trap of 127.0.1.1.
#include "tests/harness/joining.h"

#include <cerrno>
#include <cstring>

#include "tests/hosts/on_hosts.h"

namespace tutti::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Joining : public OnHosts {
 protected:
  Joining() : OnHosts(2) {}
  void SetUp() override {
    OnHosts::SetUp();
    if (IsSkipped()) return;
    const int probe = ranks_.start_helper([this](int out) {
      const std::string answer = hosts().enter(0) ? "ok\n" : std::string(std::strerror(errno)) + "\n";
      if (::write(out, answer.data(), answer.size()) < 0) ::_exit(3);
    });
    // Under TSan every process has a second thread, and then the system refuses with EINVAL.
    if (const std::string answer = ranks_.read_line(probe); answer != "ok")
      GTEST_SKIP() << "a forked process cannot enter a host here: " << answer;
  }

  Start on(int host, Environment environment, const std::string& hosts_file = {}) {
    environment.insert({"TUTTI_SECRET", "a word of more than twenty characters"});
    if (!hosts_file.empty()) must(hosts().set_hosts_file(host, hosts_file));
    return {environment, {.timeout = 60s}, [this, host] {
              if (hosts().enter(host)) return;
              std::perror("cannot enter the namespaces of a host");
              ::_exit(3);
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
};

TEST_F(Joining, JoinAndAdvertiseTheAddressThatReachedTheMaster) {
  const auto reports = ranks_.run({on(0, by_hand(0, 4, Hosts::address(0))), on(0, by_hand(1, 4, Hosts::address(0))),
                                   on(1, by_hand(2, 4, Hosts::address(0))), on(1, by_hand(3, 4, Hosts::address(0)))});
  for (const Report& report : reports) {
    ASSERT_TRUE(report.ok) << report.error << report.log;
    EXPECT_EQ(report.extra, "met");
    EXPECT_EQ(report.local_host, Hosts::address(report.rank / 2));
  }
}

TEST_F(Joining, TorchrunMeetsAtADerivedPort) {
  const Environment torchrun = {{"TORCHELASTIC_RUN_ID", "r"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}};
  const auto reports = ranks_.run({on(0, with(by_hand(0, 2, Hosts::address(0)), torchrun)),
                                   on(1, with(by_hand(1, 2, Hosts::address(0)), torchrun))});
  for (const Report& report : reports) {
    ASSERT_TRUE(report.ok) << report.error << report.log;
    EXPECT_THAT(report.store_address, HasSubstr(Hosts::address(0) + ":2"));
    EXPECT_EQ(report.store_address.find(":29500"), std::string::npos);
  }
}

TEST_F(Joining, SlurmMeetsAtTheFirstHostOfItsList) {
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
    EXPECT_EQ(report.local_host, Hosts::address(report.rank));
    EXPECT_EQ(report.started_by, "srun");
  }
}

TEST_F(Joining, TheTrapOf127011IsAWarningWhereSeveralHostsAreKnown) {
  const auto rank = [](int rank) {
    return with(by_hand(rank, 2, "node-a"), {{"LOCAL_WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}});
  };
  const auto reports = ranks_.run({on(0, rank(0), "127.0.0.1 localhost\n127.0.1.1 node-a\n"),
                                   on(1, rank(1), "127.0.0.1 localhost\n10.77.0.1 node-a\n")});
  for (const Report& report : reports) {
    ASSERT_TRUE(report.ok) << report.error << report.log;
    EXPECT_EQ(report.local_host, Hosts::address(report.rank));
  }
  EXPECT_THAT(reports[0].log, HasSubstr("rank 0 serves at 10.77.0.1: the line \"127.0.1.1 node-a (line 2 of "
                                        "/etc/hosts)\" hides the address of node-a"));
}

TEST_F(Joining, TheTrapByHandIsAWarningAndAnUnreachableMaster) {
  Start first = on(0, by_hand(0, 2, "node-a"), "127.0.0.1 localhost\n127.0.1.1 node-a\n");
  Start second = on(1, by_hand(1, 2, "node-a"), "127.0.0.1 localhost\n10.77.0.1 node-a\n");
  first.options.timeout = second.options.timeout = 1500ms;
  const auto reports = ranks_.run({first, second});
  EXPECT_THAT(reports[0].log, HasSubstr("rank 0 serves at node-a, which is 127.0.1.1 here: ranks on other machines "
                                        "cannot reach it, because of the line "
                                        "\"127.0.1.1 node-a (line 2 of /etc/hosts)\""));
  EXPECT_THAT(reports[0].error, HasSubstr("rank 1 of 2 did not join"));
  EXPECT_THAT(reports[1].error, AllOf(HasSubstr("Unreachable: join, rank 1: cannot connect to 10.77.0.1:29500"),
                                      HasSubstr("Connection refused")));
}

}  // namespace
}  // namespace tutti::testing
