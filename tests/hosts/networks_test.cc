// Hosts with several networks, of which one is the wrong one for a job: what is said, and that --iface mends it.
#include <csignal>

#include "tests/hosts/on_hosts.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class Networks : public OnHosts {
 protected:
  Networks() : OnHosts(2) {}
  struct Both {
    Ended here, there;
  };
  using Changes = std::map<std::string, std::string>;
  Both run_with(const Arguments& options, const Changes& changes = {}, const Changes& changes_there = {},
                const std::string& mode = "once") {
    Arguments rest = options;
    rest.insert(rest.end(), {world(), mode});
    Running first = start(0, node(0, 2, "1", rest), changes), second = start(1, node(1, 2, "1", rest), changes_there);
    const Ended here = first.wait(), there = second.wait();
    return {here, there};
  }
  void runs_with(const Arguments& options) {
    const Both both = run_with(options);
    EXPECT_EQ(both.here.code, 0) << both.here.err;
    EXPECT_EQ(both.there.code, 0) << both.there.err;
    EXPECT_THAT(both.there.out, HasSubstr("rank 1 of 2: sum 3"));
  }
};

// Each machine has a bridge for its containers, under the same address: what rank 0 tells of itself is, on the other
// host, the other host.
TEST_F(Networks, ABridgeThatEachHostHasIsDistinguishedFromALostRank) {
  for (const int host : {0, 1})
    must(hosts()
             .shell(host,
                    "ip link add docker0 type bridge && ip address add 172.17.0.1/16 dev docker0 && "
                    "ip link set docker0 up")
             .status());
  const Both wrong = run_with({"--iface", "docker0"});
  EXPECT_EQ(wrong.here.code, 1);
  EXPECT_EQ(wrong.there.code, 1);
  for (const Ended* ended : {&wrong.here, &wrong.there}) {
    EXPECT_THAT(ended->err,
                AllOf(HasSubstr("the job failed: rank 1 (pid "),
                      HasSubstr("Unreachable: connecting to rank 0, rank 1: cannot connect to 172.17.0.1:"),
                      HasSubstr("Connection refused (hint: this machine has that address itself: if the rank "
                                "runs on another one, both have it, as those of container bridges (docker0); "
                                "--iface or TUTTI_IFACE names a network that all machines share)")));
  }
  runs_with({});  // the address that reached the store
  runs_with({"--iface", "10.77.0.0/24"});
  runs_with({"--iface", "eth0"});
}

// A second network that is there, and cabled on one of the hosts alone.
TEST_F(Networks, ANetworkThatLeadsNowhereEndsWithinTheJoinTimeout) {
  must(hosts().add_network());
  runs_with({"--iface", "eth1"});
  must(hosts()
           .shell(1,
                  "ip link set eth1 down && ip address flush dev eth1 && ip link set lo up && ip address add "
                  "10.78.0.2/24 dev "
                  "lo && ip route add unreachable 10.78.0.1")
           .status());
  // Whoever waits for less says what it sees, and both nodes end.
  const Both dialled = run_with({"--iface", "10.78.0.0/24"}, {}, {{"TUTTI_JOIN_TIMEOUT", "2s"}}, "careless");
  const Both awaited = run_with({"--iface", "10.78.0.0/24"}, {{"TUTTI_JOIN_TIMEOUT", "2s"}}, {}, "careless");
  for (const Ended* ended : {&dialled.here, &dialled.there, &awaited.here, &awaited.there}) EXPECT_EQ(ended->code, 4);
  EXPECT_THAT(dialled.there.err,
              AllOf(HasSubstr("Unreachable: connecting to rank 0, rank 1: cannot connect to 10.78.0.1:"),
                    HasSubstr("(hint: no route from here to the address of that rank: check firewalls; if the machines "
                              "have several networks, --iface or TUTTI_IFACE names a network that all machines share; "
                              "`tutti doctor` tries the pairs)")));
  EXPECT_THAT(awaited.here.err,
              AllOf(HasSubstr("Timeout: connecting, rank 0: rank 1 did not connect to 10.78.0.1:"),
                    HasSubstr(" s of 2 s (hint: "), HasSubstr("--iface or TUTTI_IFACE chooses another network")));
  runs_with({});
  runs_with({"--iface", "eth0"});
}

// A rank in a container with a network of its own finds nothing at the name of the store's Unix socket, which the other
// rank takes: it comes over TCP.
TEST_F(Networks, ARankThatDoesNotReachTheUnixSocketOfTheStoreTakesTcp) {
  std::string entering;
  for (const std::string& word : hosts().entering(1)) entering += word + " ";
  const std::string rank = "[ $RANK = 0 ] || exec " + entering + world() + " once; exec " + world() + " once";
  const Ended ended =
      start(0, {"run", "-n", "2", "--rdzv-backend", "elastic", "--rdzv-endpoint", Hosts::address(0), "sh", "-c", rank})
          .wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
  EXPECT_THAT(ended.out, AllOf(HasSubstr("rank 0 of 2: sum 3"), HasSubstr("rank 1 of 2: sum 3")));
}

// The number of node 0's address is that of its bridge: nobody else finds it there.
TEST_F(Networks, TheNodeThatServesSaysWhereItWaits) {
  must(hosts()
           .shell(0,
                  "ip link add docker0 type bridge && ip address add 172.17.0.1/16 dev docker0 && "
                  "ip link set docker0 up")
           .status());
  Running first = start(0, {"run", "--nnodes", "2", "--node-rank", "0", "--iface", "docker0", "-n", "1",
                            "--connect-timeout", "2s", world(), "once"});
  const Ended second = start(1, node(1, 2, "1", {"--connect-timeout", "2s", world(), "once"})).wait();
  const Ended here = first.wait();
  EXPECT_EQ(here.code, 4);
  EXPECT_EQ(second.code, 4);
  EXPECT_THAT(here.err, AllOf(HasSubstr("1 of 2 nodes joined after 2"),
                              HasSubstr("missing: node 1 (the nodes meet at 172.17.0.1:29501)")));
  EXPECT_THAT(second.err, HasSubstr("cannot connect to 10.77.0.1:29501"));
}

}  // namespace
}  // namespace tutti::testing
