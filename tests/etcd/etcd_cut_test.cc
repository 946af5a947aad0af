// Nodes that meet in an etcd which all of them reach, on hosts between which cables are cut.
#include <unistd.h>

#include <csignal>
#include <cstdio>

#include "tests/etcd/etcd_server.h"
#include "tests/hosts/on_hosts.h"
#include "tutti/base/text.h"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kNodes = 3, kEtcdHost = kNodes;

class EtcdCuts : public OnHosts {
 protected:
  EtcdCuts() : OnHosts(kNodes + 1) {}

  void SetUp() override {
    OnHosts::SetUp();
    if (IsSkipped()) return;
    const std::string url = "http://" + endpoint();
    const auto pid = hosts().shell(kEtcdHost, "cd " + hosts().folder(kEtcdHost) + "; etcd --listen-client-urls " + url +
                                                  " --advertise-client-urls " + url +
                                                  " --data-dir etcd > etcd.log 2>&1 < /dev/null & echo $!");
    ASSERT_TRUE(pid.ok()) << to_string(pid.error());
    etcd_ = int(parse_int(trim(*pid)).value_or(0));
    ASSERT_GT(etcd_, 0);
  }
  void TearDown() override {
    if (etcd_ > 0) (void)hosts().shell(kEtcdHost, "kill -9 " + std::to_string(etcd_));  // gone already, then
    OnHosts::TearDown();
  }

  static std::string endpoint() { return Hosts::address(kEtcdHost) + ":2379"; }
  Running start_node(int host) {
    return start(host, {"run", "--nnodes", "1:3", "--rdzv-backend", "etcd", "--rdzv-endpoint", endpoint(), "--rdzv-id",
                        "job", "--rdzv-conf", "last_call_timeout=1,join_timeout=120", "--no-tune", "--grace", "1s",
                        "sh", "-c", "echo \"world $WORLD_SIZE in $TUTTI_GENERATION\"; exec sleep 600"});
  }
  // Neither of the two hears the other any more.
  void part(int one, int other) {
    must(hosts().cut(one, other));
    must(hosts().cut(other, one));
  }

 private:
  int etcd_ = 0;
};

TEST_F(EtcdCuts, ACoordinatorThatIsCutOffFromTheOthersStops) {
  Running a = start_node(0);
  a.await_out("world 1 in 0");  // so it coordinates
  Running b = start_node(1);
  for (Running* node : {&a, &b}) node->await_out("world 2 in 1");
  Running c = start_node(2);
  for (Running* node : {&a, &b, &c}) node->await_out("world 3 in 2");
  part(0, 1), part(0, 2);
  b.await_out("world 2 in ", 2);
  c.await_out("world 2 in ");
  a.await_err(", reaches etcd, but not this node: waiting for its heartbeats, for ");
  must(hosts().heal());
  for (Running* node : {&a, &b, &c}) node->await_out("world 3 in ", 2);
  b.send(SIGINT);
  const Ended cut = a.wait();
  b.wait(), c.wait();
  const auto first = cut.out.find("world 1 in ");
  EXPECT_EQ(cut.out.find("world 1 in ", first + 1), std::string::npos) << "it went on alone";
}

TEST_F(EtcdCuts, ANodeThatIsCutOffFromTheOthersLeavesThemTheJob) {
  Running a = start_node(0);
  a.await_out("world 1 in 0");
  Running b = start_node(1), c = start_node(2);
  for (Running* node : {&a, &b, &c}) node->await_out("world 3 in ");
  part(2, 0), part(2, 1);
  a.await_err("(node-c) is lost");
  c.await_err("the coordinator, node-a at 10.77.0.1:");
  c.await_err(", reaches etcd, but not this node: waiting for its heartbeats, for ");
  must(hosts().heal());
  for (Running* node : {&a, &b, &c}) node->await_out("world 3 in ", 2);
  b.send(SIGINT);
  const Ended led = a.wait(), cut = c.wait();
  b.wait();
  EXPECT_THAT(led.err, Not(HasSubstr("coordinates the job now")));
  EXPECT_THAT(cut.out, Not(HasSubstr("world 1 in ")));
}

// Nobody can say that it lives: of three nodes one goes on.
TEST_F(EtcdCuts, NodesThatLostPowerAreNotWaitedFor) {
  Running a = start_node(0);
  a.await_out("world 1 in 0");
  Running b = start_node(1), c = start_node(2);
  for (Running* node : {&a, &b, &c}) node->await_out("world 3 in ");
  must(hosts().power_off(0));
  must(hosts().power_off(1));
  c.await_out("world 1 in ");
  c.send(SIGINT);
  EXPECT_EQ(c.wait().code, 130);
}

}  // namespace
}  // namespace tutti::testing

int main(int argc, char** argv) {
  if (!tutti::EtcdServer::installed()) {
    std::puts("skipped: there is no etcd (Debian: apt-get install etcd-server)");
    return 77;
  }
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}
