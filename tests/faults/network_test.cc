// The network between ranks fails without a word: no end of a connection, nothing. In a network namespace of the test's
// own the one interface goes down while ranks talk over TCP.
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "tests/faults/worlds.h"
#include "tutti/base/fd.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

void write_file(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

bool set_loopback(bool up) {
  const Fd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq request{};
  std::strcpy(request.ifr_name, "lo");
  request.ifr_flags = up ? IFF_UP : 0;
  return socket && ::ioctl(socket.get(), SIOCSIFFLAGS, &request) == 0;
}

// A user and network namespace for this process from here on; why not, if not.
std::string enter_own_network() {
  const uid_t uid = ::getuid();
  const gid_t gid = ::getgid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return std::strerror(errno);
  write_file("/proc/self/setgroups", "deny");
  write_file("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1");
  write_file("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1");
  return set_loopback(true) ? "" : "the loopback interface cannot be set up";
}

// Runs `act` in a process in a network of its own; its failures are this test's.
void in_own_network(const std::function<void()>& act) {
  int notes[2];
  ASSERT_EQ(::pipe(notes), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    ::close(notes[0]);
    if (const std::string why = enter_own_network(); !why.empty()) {
      (void)!::write(notes[1], why.data(), why.size());
      ::_exit(77);
    }
    act();
    std::fflush(nullptr);
    ::_exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  ::close(notes[1]);
  char why[200] = {};
  (void)!::read(notes[0], why, sizeof why - 1);
  ::close(notes[0]);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
    GTEST_SKIP() << "this system lets us make no network of our own: " << why;
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

class Network : public ::testing::TestWithParam<int> {};

TEST_P(Network, ASilentOneIsFoundByTheLimit) {
  in_own_network([&] {
    const int size = GetParam();
    const auto body = [&](Group& world) {
      const auto data = make_buffer(world, 100000, false);
      expect_failure(world, [&] {
        for (int i = 0;; ++i) {
          if (i == 20 && world.rank() == 0) check(set_loopback(false), "cannot take the loopback interface down");
          all_reduce(world, std::span(data.get(), 100000));
        }
      });
    };
    for (const Outcome& o : run_world({"", true, "tcp", ""}, size, body, {.timeout = 2})) {
      EXPECT_FALSE(o.hung);
      EXPECT_THAT(o.error, MatchesRegex("Timeout: all_reduce #[0-9]+ .f32.100000., sum. on group world, rank [0-3]: "
                                        "still waiting for ranks? .* of 2 s.*"));
    }
  });
}

// Long before the limit of a call: nobody at the other end has acknowledged anything for TUTTI_PEER_TIMEOUT.
TEST_P(Network, APeerThatAcknowledgesNothingIsLost) {
  in_own_network([&] {
    const int size = GetParam();
    const auto body = [&](Group& world) {
      const auto data = make_buffer(world, 100000, false);
      expect_failure(world, [&] {
        for (int i = 0;; ++i) {
          if (i == 20 && world.rank() == 0) check(set_loopback(false), "cannot take the loopback interface down");
          all_reduce(world, std::span(data.get(), 100000));
        }
      });
    };
    for (const Outcome& o :
         run_world({"", true, "tcp", ""}, size, body, {.environment = {{"TUTTI_PEER_TIMEOUT", "2s"}}})) {
      EXPECT_FALSE(o.hung);
      EXPECT_THAT(o.error, MatchesRegex("PeerLost: all_reduce #[0-9]+ .* on group world, rank [0-3]: rank [0-3] at "
                                        "127.0.0.1:[0-9]+ has acknowledged nothing for [0-9.]+ s.*"));
      EXPECT_THAT(o.error, HasSubstr("its machine is down, or the network in between is cut"));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Ranks, Network, ::testing::Values(2, 3),
                         [](const auto& info) { return std::to_string(info.param); });

// A rank that computes for longer than that, or is stopped, is not lost: its system answers for it.
TEST(Acknowledgements, ComeFromAPeerThatIsBusy) {
  const auto body = [&](Group& world) {
    const auto data = make_buffer(world, 8000000, false);
    barrier(world);
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::seconds(3));
    all_reduce(world, std::span(data.get(), 8000000));
  };
  EXPECT_EQ(describe(run_world({"", true, "tcp", ""}, 2, body, {.environment = {{"TUTTI_PEER_TIMEOUT", "1s"}}})), "");
}

}  // namespace
}  // namespace tutti::test
