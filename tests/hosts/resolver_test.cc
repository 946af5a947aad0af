// Name servers that are slow, or silent.
#include <csignal>

#include "tests/hosts/on_hosts.h"

namespace tutti::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Answers each question for an IPv4 address with 10.77.0.1, after a while; argv[1] < 0: none.
constexpr const char* kServer = R"(
import select, socket, sys, time
wait = float(sys.argv[1])
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(("10.77.0.2", 53))
print("serving", flush=True)
pending = []
while True:
    if select.select([server], [], [], 0.05)[0]:
        question, client = server.recvfrom(2000)
        print("asked", flush=True)
        if wait >= 0: pending.append((time.monotonic() + wait, question, client))
    while pending and pending[0][0] <= time.monotonic():
        _, question, client = pending.pop(0)
        end = question.index(0, 12) + 5
        is_a = question[end - 4:end - 2] == bytes([0, 1])
        answer = bytes([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 10, 77, 0, 1]) if is_a else b""
        server.sendto(question[:2] + bytes([0x81, 0x80, 0, 1, 0, 1 if is_a else 0, 0, 0, 0, 0]) + question[12:end] + answer, client)
)";

class Resolver : public OnHosts {
 protected:
  Resolver() : OnHosts(2) {}
  // Host 1 serves names, and host `asking` asks it.
  std::unique_ptr<Running> serve(int asking, const std::string& wait, const std::string& options = "") {
    const std::string file = hosts().folder(asking) + ".resolv";
    must(hosts()
             .shell(asking, "printf 'nameserver 10.77.0.2\n" + options + "' > " + file + " && mount --bind " + file +
                                " /etc/resolv.conf")
             .status());
    auto server = std::make_unique<Running>(Arguments{"run", "-q", "-n", "1", "python3", "-c", kServer, wait},
                                            std::map<std::string, std::string>{}, "", hosts().entering(1));
    server->await_out("serving");
    return server;
  }
  static void end(Running& server) {
    server.send(SIGTERM);
    EXPECT_EQ(server.wait().code, 143);
  }
};

TEST_F(Resolver, ThatIsSlowIsReportedAndTheJobRuns) {
  const auto server = serve(0, "3");
  Running first = start(0, node_at("head.cluster", 0, 2, "1", {world(), "once"})),
          second = start(1, node(1, 2, "1", {world(), "once"}));
  const Ended here = first.wait(), there = second.wait();
  EXPECT_EQ(here.code, 0) << here.err;
  EXPECT_EQ(there.code, 0) << there.err;
  EXPECT_THAT(here.err,
              AllOf(HasSubstr("the address of host \"head.cluster\" came after 3"),
                    HasSubstr("/etc/resolv.conf on this machine are slow; a line in /etc/hosts avoids the wait")));
  EXPECT_THAT(there.out, HasSubstr("rank 1 of 2: sum 3"));
  end(*server);
}

TEST_F(Resolver, ThatNeverAnswersIsReportedOnTheNodeThatAsksIt) {
  for (const int host : {0, 1}) {
    const auto server = serve(host, "-1", "options timeout:1 attempts:2\\n");
    const Ended ended =
        start(host, node_at("head.cluster", host, 2, "1", {"--connect-timeout", "2s", world(), "once"})).wait();
    EXPECT_EQ(ended.code, 4);
    EXPECT_THAT(ended.err,
                AllOf(HasSubstr("Unreachable: cannot find the address of host \"head.cluster\" (Temporary "
                                "failure in name resolution after 2"),
                      HasSubstr("no name server answers (/etc/resolv.conf on this machine): write the host into "
                                "/etc/hosts, or give a numeric address")));
    end(*server);
  }
}

TEST_F(Resolver, DoesNotHoldASignal) {
  const auto server = serve(1, "-1");
  Running waiting = start(1, node_at("head.cluster", 1, 2, "1", {world(), "once"}));
  server->await_out("asked");
  waiting.send(SIGINT);
  EXPECT_EQ(waiting.wait().code, 130);
  end(*server);
}

}  // namespace
}  // namespace tutti::testing
