// Jobs of real ranks on two hosts that are told to stop, and save first.
#include <csignal>

#include "tests/hosts/on_hosts.h"

namespace tutti::testing {
namespace {

using ::testing::HasSubstr;

class Stopping : public OnHosts {
 protected:
  Stopping() : OnHosts(2) {}
};

TEST_F(Stopping, RanksOfBothNodesSaveAtOneStep) {
  for (const int signal : {SIGTERM, SIGUSR1}) {
    Running first = start(0, node(0, 2, "2", {faulty(), "save"})),
            second = start(1, node(1, 2, "2", {faulty(), "save"}));
    first.await_out("ready", 2);
    second.await_out("ready", 2);
    second.send(signal);
    const Ended here = first.wait(), there = second.wait();
    EXPECT_EQ(here.code, 75) << here.err;
    EXPECT_EQ(there.code, 75) << there.err;
    const std::string line = line_with(here.out, "saved at step ");
    const std::string step = line.substr(line.find("saved"));
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_THAT(rank < 2 ? here.out : there.out, HasSubstr("[" + std::to_string(rank) + "] " + step + "\n"));
  }
}

}  // namespace
}  // namespace tutti::testing
