// The harness itself: hosts that reach one another, and cables that do what they are told.
#include "tests/hosts/on_hosts.h"
#include "tutti/transport/socket.h"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

class HostsTest : public OnHosts {
 protected:
  HostsTest() : OnHosts(3) {}

  // Whether a connection from one host to a listener on the other comes about.
  bool reaches(int from, int to, const std::string& address) {
    const std::string port = "29500";
    Running listener = on(to, "import socket\ns = socket.create_server(('" + address + "', " + port +
                                  "), family=socket.AF_INET6 if ':' in '" + address +
                                  "' else socket.AF_INET)\nprint('listening', flush=True)\ns.accept()[0].recv(1)");
    listener.await_out("listening");
    Running caller = on(from, "import socket\ntry:\n  socket.create_connection(('" + address + "', " + port +
                                  "), 2).send(b'x')\n  print('reached')\nexcept OSError as e: print(e)");
    const bool reached = caller.wait().out == "reached\n";
    return reached;
  }
  // A small program without the command's own variables.
  Running on(int host, const std::string& python) {
    return start(host, {"run", "-q", "--no-prefix", "--signal-grace", "0s", "python3", "-c", python});
  }
};

TEST_F(HostsTest, AreNamedAndReachOneAnother) {
  for (int host = 0; host < 3; ++host) {
    const auto answer = hosts().shell(host, "hostname; getent ahostsv4 node-c | head -n 1; ls /dev/shm | wc -l");
    ASSERT_TRUE(answer.ok()) << to_string(answer.error());
    EXPECT_THAT(*answer, ::testing::MatchesRegex("node-" + std::string(1, char('a' + host)) + "\n10.77.0.3 .*\n0\n"));
  }
  EXPECT_TRUE(reaches(0, 2, Hosts::address(2)));
  EXPECT_TRUE(reaches(2, 1, Hosts::address6(1)));
}

TEST_F(HostsTest, CablesAreCutInOneDirection) {
  for (int host = 0; host < 3; ++host) {  // an address is known without asking, which would need an answer
    std::string known = "true";
    for (int other = 0; other < 3; ++other)
      if (other != host)
        known += " && ip neighbour replace " + Hosts::address(other) + " lladdr 02:00:00:00:00:0" +
                 std::to_string(other + 1) + " dev eth0 nud permanent";
    must(hosts().shell(host, known).status());
  }
  // Whether one of 20 datagrams gets there.
  const auto sees = [&](int from, int to) {
    Running receiver = on(to, "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.bind(('" +
                                  Hosts::address(to) + "', 5000))\nprint('listening', flush=True)\n" +
                                  "while (word := s.recv(9)) != b'end': print('got', word)");
    receiver.await_out("listening");
    const auto send = [&](int host, const std::string& word) {
      return hosts().shell(host, "exec bash -c 'printf " + word + " > /dev/udp/" + Hosts::address(to) + "/5000'");
    };
    must(hosts()
             .shell(from,
                    "exec bash -c 'for i in {1..20}; do printf x > /dev/udp/" + Hosts::address(to) + "/5000; done'")
             .status());
    must(send(to, "end").status());
    return receiver.wait().out.find("got") != std::string::npos;
  };
  must(hosts().cut(0, 1));
  EXPECT_FALSE(sees(0, 1));
  EXPECT_TRUE(sees(1, 0));
  EXPECT_TRUE(sees(0, 2));
  must(hosts().heal());
  EXPECT_TRUE(sees(0, 1));
  must(hosts().partition({2}));
  EXPECT_FALSE(sees(0, 2));
  EXPECT_FALSE(sees(2, 1));
  EXPECT_TRUE(sees(0, 1));
  must(hosts().heal());
  must(hosts().lose(2, 0.5));
  EXPECT_TRUE(sees(0, 2));  // 20 datagrams: a chance of one in a million to lose all
  must(hosts().lose(2, 1));
  EXPECT_FALSE(sees(0, 2));
  must(hosts().heal());
  must(hosts().unplug(2));
  EXPECT_FALSE(sees(0, 2));
  must(hosts().plug_in(2));
  EXPECT_TRUE(sees(0, 2));
}

TEST_F(HostsTest, PowerOffEndsWhatRunsThere) {
  Running running = start(1, {"run", "-n", "2", worker(), "pause"});
  running.await_out("ready", 2);
  EXPECT_FALSE(hosts().processes(1).empty());
  must(hosts().power_off(1));
  EXPECT_EQ(hosts().census(), "");
  EXPECT_FALSE(reaches(0, 1, Hosts::address(1)));
  EXPECT_EQ(running.wait().code, 137);
}

}  // namespace
}  // namespace tutti::testing
