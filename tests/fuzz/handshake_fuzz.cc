// A stranger at the door: the first byte chooses who is fuzzed, the rest is what the other side sends. Nobody without
// the secret is ever let in.
#include <sys/socket.h>

#include "tests/fuzz/targets.h"
#include "tutti/transport/handshake.h"

namespace tutti::fuzz {

void handshake(Input input) {
  static const transport::Credentials credentials{.secret = transport::Secret::random(), .job = "job", .generation = 1};
  int pair[2];
  promise(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) == 0, "a socket can be made");
  const Fd attacker(pair[0]), victim(pair[1]);
  const bool to_server = take(input) % 2 == 0;
  if (::send(attacker.get(), input.data(), input.size(), MSG_NOSIGNAL) < 0 && !input.empty()) return;
  ::shutdown(attacker.get(), SHUT_WR);
  if (to_server) {
    transport::ServerHandshake server(credentials, transport::Role::kStore);
    const auto finished = server.advance(victim.get());
    promise(!finished.ok() || !*finished, "a stranger is not let in");
    if (!finished.ok()) promise_sentence(finished.error());
  } else {
    const Status told = transport::handshake_as_client(victim.get(), credentials, {}, Deadline::after_seconds(10));
    promise(!told.ok(), "a stranger is not taken for a server");
    promise_sentence(told.error());
  }
}

}  // namespace tutti::fuzz
