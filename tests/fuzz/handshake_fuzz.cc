// A stranger at the door: the first byte chooses who is fuzzed, the rest is what the other side sends. Nobody without
// the secret is ever let in.
#include <sys/socket.h>

#include <cstdint>
#include <cstdlib>

#include "tutti/transport/handshake.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti;
  if (size == 0) return 0;
  static const Credentials credentials{.secret = Secret::random(), .job = "job", .generation = 1};
  int pair[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0) std::abort();
  Fd attacker(pair[0]), victim(pair[1]);
  if (::send(attacker.get(), data + 1, size - 1, MSG_NOSIGNAL) < 0 && size > 1) return 0;
  ::shutdown(attacker.get(), SHUT_WR);
  if (data[0] % 2 == 0) {
    ServerHandshake handshake(credentials, Role::kStore);
    const auto finished = handshake.advance(victim.get());
    if (finished.ok() && *finished) std::abort();
  } else {
    if (handshake_as_client(victim.get(), credentials, {}, Deadline::after_seconds(10)).ok()) std::abort();
  }
  return 0;
}
