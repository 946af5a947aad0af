// Jobs on several hosts begin, or say why not: unequal counts, names that resolve wrongly, a port that is taken.
#include <csignal>
#include <utility>

#include "tests/hosts/on_hosts.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Starting : public OnHosts {
 protected:
  Starting() : OnHosts(2) {}
};

TEST_F(Starting, TwoNodesOfEightAndTwoRanks) {
  Running first = start(0, node(0, 2, "8", {world(), "once"})), second = start(1, node(1, 2, "2", {world(), "once"}));
  const Ended here = first.wait(), there = second.wait();
  EXPECT_EQ(here.code, 0) << here.err;
  EXPECT_EQ(there.code, 0) << there.err;
  for (int rank = 0; rank < 10; ++rank) {
    const std::string line =
        "[" + std::to_string(rank) + "] rank " + std::to_string(rank) + " of 10: sum " + std::to_string(55) + "\n";
    EXPECT_THAT(rank < 8 ? here.out : there.out, HasSubstr(line));
  }
}

// Gloo and NCCL would look up the host's own name, which is 127.0.1.1 on Debian.
TEST_F(Starting, OtherLibrariesGetTheNetworkOfTheJob) {
  const Arguments print = {"sh", "-c", "echo $GLOO_SOCKET_IFNAME $TP_SOCKET_IFNAME $NCCL_SOCKET_IFNAME"};
  const std::map<std::string, std::string> own_choice = {{"NCCL_SOCKET_IFNAME", "ib0"}};
  Running first = start(0, node(0, 2, "1", print), own_choice), second = start(1, node(1, 2, "1", print), own_choice);
  const Ended here = first.wait(), there = second.wait();
  EXPECT_THAT(here.out, HasSubstr("eth0 eth0 ib0")) << here.err;
  EXPECT_THAT(there.out, HasSubstr("eth0 eth0 ib0")) << there.err;
}

// The address that Gloo gives other hosts is that of the host's own name, unless a variable names an interface.
constexpr const char* kGloo = R"(
import datetime, torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
numbers = torch.full((1000,), dist.get_rank() + 1.0)
dist.all_reduce(numbers)
print("sum", numbers.sum().item())
)";

class StartingGloo : public Starting {
 protected:
  void SetUp() override {
    Starting::SetUp();
    if (IsSkipped()) return;
    if (const auto torch = hosts().shell(0, "/usr/bin/python3 -c 'import torch.distributed'"); !torch.ok())
      GTEST_SKIP() << "needs PyTorch (Debian: python3-torch): " << torch.error().detail;
    for (const int host : {0, 1})
      must(hosts().set_hosts_file(host, "127.0.0.1 localhost\n127.0.1.1 " + Hosts::name(host) + "\n"));
  }
  // `around`: words to be put before the program.
  std::pair<Ended, Ended> run_on_both(Arguments around) {
    around.insert(around.end(), {"/usr/bin/python3", "-c", kGloo});
    Running first = start(0, node(0, 2, "1", around)), second = start(1, node(1, 2, "1", around));
    const Ended here = first.wait();
    return {here, second.wait()};
  }
};

TEST_F(StartingGloo, WorksWhereTheOwnNameIsALoopbackAddress) {
  const auto [here, there] = run_on_both({});
  EXPECT_EQ(here.code, 0) << here.err;
  EXPECT_EQ(there.code, 0) << there.err;
  EXPECT_THAT(here.out, HasSubstr("[0] sum 3000.0\n"));
  EXPECT_THAT(there.out, HasSubstr("[1] sum 3000.0\n"));
}

TEST_F(StartingGloo, WithoutTheVariableFailsWithAHint) {
  const auto [here, there] = run_on_both({"env", "-u", "GLOO_SOCKET_IFNAME"});
  EXPECT_NE(here.code, 0);
  EXPECT_THAT(here.err + there.err, HasSubstr("hint: Gloo took a loopback address for that of a host"));
}

TEST_F(Starting, OverIPv6) {
  const std::string master = Hosts::address6(0);
  Running first = start(0, node_at(master, 0, 2, "1", {world(), "once"})),
          second = start(1, node_at(master, 1, 2, "1", {world(), "once"}));
  const Ended here = first.wait(), there = second.wait();
  EXPECT_EQ(here.code, 0) << here.err;
  EXPECT_EQ(there.code, 0) << there.err;
  EXPECT_THAT(there.out, HasSubstr("[1] rank 1 of 2: sum 3\n"));
}

// The user's own trap: Debian gives a host's own name the address 127.0.1.1.
TEST_F(Starting, ANameThatIsLoopbackHereStandsForTheAddressThatOthersReach) {
  must(hosts().set_hosts_file(0, "127.0.0.1 localhost\n127.0.1.1 node-a\n"));
  must(hosts().set_hosts_file(1, "127.0.0.1 localhost\n" + Hosts::address(0) + " node-a\n"));
  Running first = start(0, node_at("node-a", 0, 2, "1", {world(), "once"})),
          second = start(1, node_at("node-a", 1, 2, "1", {world(), "once"}));
  const Ended here = first.wait(), there = second.wait();
  EXPECT_EQ(here.code, 0) << here.err;
  EXPECT_THAT(here.err, HasSubstr("rank 0 serves at 10.77.0.1: the line \"127.0.1.1 node-a (line 2 of /etc/hosts)\""));
  EXPECT_THAT(there.out, HasSubstr("[1] rank 1 of 2: sum 3\n")) << there.err;
}

// Of several addresses that of the default route is taken.
TEST_F(Starting, ANameThatIsLoopbackHereStandsForTheAddressOfTheDefaultRoute) {
  must(hosts().add_network());
  for (const int host : {0, 1}) {
    const auto routed =
        hosts().shell(host, "ip route add default via " + Hosts::second_address(1 - host) + " dev eth1");
    ASSERT_TRUE(routed.ok()) << to_string(routed.error());
  }
  must(hosts().set_hosts_file(0, "127.0.0.1 localhost\n127.0.1.1 node-a\n"));
  must(hosts().set_hosts_file(1, "127.0.0.1 localhost\n" + Hosts::second_address(0) + " node-a\n"));
  Running first = start(0, node_at("node-a", 0, 2, "1", {world(), "once"})),
          second = start(1, node_at("node-a", 1, 2, "1", {world(), "once"}));
  const Ended here = first.wait(), there = second.wait();
  EXPECT_EQ(here.code, 0) << here.err;
  EXPECT_THAT(here.err, HasSubstr("rank 0 serves at " + Hosts::second_address(0) + ": the line"));
  EXPECT_THAT(there.out, HasSubstr("[1] rank 1 of 2: sum 3\n")) << there.err;
}

TEST_F(Starting, ANameThatOnlyTheOtherHostKnows) {
  must(hosts().set_hosts_file(1, "127.0.0.1 localhost\n"));
  const Ended ended = start(1, node_at("node-a", 1, 2, "1", {"--connect-timeout", "300ms", worker(), "print"})).wait();
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.err, HasSubstr("node-a"));
}

// A pod's name is known some seconds after its start.
TEST_F(Starting, NodeZeroWaitsForTheAddressOfItsOwnName) {
  must(hosts().set_hosts_file(0, "127.0.0.1 localhost\n"));
  Running first = start(0, node_at("node-a", 0, 2, "1", {world(), "once"}));
  first.await_err("cannot find the address of host \"node-a\"");
  must(hosts().set_hosts_file(0, "127.0.0.1 localhost\n" + Hosts::address(0) + " node-a\n"));
  const Ended there = start(1, node(1, 2, "1", {world(), "once"})).wait(), here = first.wait();
  EXPECT_EQ(here.code, 0) << here.err;
  EXPECT_THAT(there.out, HasSubstr("rank 1 of 2: sum 3")) << there.err;
}

TEST_F(Starting, APortThatIsTakenNamesItsHolder) {
  Running holder = start(0, {"run", "-q", "python3", "-c",
                             "import socket, time\ns = socket.create_server(('10.77.0.1', 29501))\nprint('held', "
                             "flush=True)\ntime.sleep(1000)"});
  holder.await_out("held");
  const Ended ended = start(0, node(0, 2, "1", {worker(), "print"})).wait();
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.err, AllOf(HasSubstr("AddressInUse"), HasSubstr("10.77.0.1:29501"), HasSubstr("python3"),
                               HasSubstr("--store-port")));
  holder.send(SIGTERM);
  EXPECT_EQ(holder.wait().code, 143);
}

// Another job at the same port, with a secret of its own: both sides of the mix-up are told.
TEST_F(Starting, ASecondJobAtTheSamePortIsRejectedOnBothSides) {
  Running other = start(0, node(0, 2, "1", {"--job-id", "mine", worker(), "print"}));
  other.await_err("node 1");  // it waits for its second node
  const Ended stray = start(1, node(1, 2, "1", {"--job-id", "yours", worker(), "print"})).wait();
  EXPECT_EQ(stray.code, 2);
  EXPECT_THAT(stray.err, AllOf(HasSubstr("Refused: "), HasSubstr("another job"), HasSubstr("\"yours\"")));
  const Ended again = start(0, node(0, 2, "1", {"--job-id", "yours", worker(), "print"})).wait();
  EXPECT_EQ(again.code, 2);
  EXPECT_THAT(again.err, AllOf(HasSubstr("10.77.0.1:29501"), HasSubstr("tutti"), HasSubstr("--store-port")));
  other.send(SIGTERM);
  EXPECT_EQ(other.wait().code, 143);
}

}  // namespace
}  // namespace tutti::testing
