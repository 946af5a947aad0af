// Whoever reaches the port of a job's store and does not belong to the job: the job continues as if nobody had come.
#include "tests/hosts/on_hosts.h"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

class Strangers : public OnHosts {
 protected:
  Strangers() : OnHosts(3) {}
};

// Garbage, a web browser, a port scan, and connections that say nothing for as long as they may.
constexpr const char* kStranger = R"(
import os, socket, time
silent = []
for i in range(200):
  s = socket.create_connection(('10.77.0.1', 29501), 5)
  try:
    if i % 4 == 0: s.sendall(os.urandom(1000))
    if i % 4 == 1: s.sendall(b'GET / HTTP/1.1\r\nHost: node-a\r\n\r\n')
    if i % 4 == 2: s.sendall(b'\xff\xff\xff\xff')
  except OSError: pass
  if i % 4 == 3: silent.append(s)
print('bothered', flush=True)
time.sleep(1000)
)";

TEST_F(Strangers, DoNotDisturbAJobThatStarts) {
  Running first = start(0, node(0, 2, "2", {world(), "once"}));
  first.await_err("node 1");  // it waits
  Running stranger = start(2, {"run", "-q", "python3", "-c", kStranger});
  stranger.await_out("bothered");
  Running second = start(1, node(1, 2, "1", {world(), "once"}));
  const Ended here = first.wait(), there = second.wait();
  EXPECT_EQ(here.code, 0) << here.err;
  EXPECT_EQ(there.code, 0) << there.err;
  EXPECT_THAT(there.out, HasSubstr("[2] rank 2 of 3: sum 6\n"));
  stranger.send(SIGTERM);
  stranger.wait();
}

TEST_F(Strangers, WithAnotherSecretAreRejectedWithTheReason) {
  Running first = start(0, node(0, 2, "1", {worker(), "pause"})),
          second = start(1, node(1, 2, "1", {worker(), "pause"}));
  first.await_out("ready");
  second.await_out("ready");
  const Ended refused = start(2, node(1, 2, "1", {worker(), "print"}),
                              {{"TUTTI_SECRET", "the wrong word, of more than twenty characters"}})
                            .wait();
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("Refused: the store at 10.77.0.1:29501 holds another secret"));
  second.send(SIGTERM);
  EXPECT_EQ(second.wait().code, 143);
  EXPECT_EQ(first.wait().code, 143);
}

}  // namespace
}  // namespace tutti::testing
