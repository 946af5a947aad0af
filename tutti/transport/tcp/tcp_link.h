#pragma once
// The Link between ranks of different hosts: one TCP connection, already made and past the handshake (tcp_transport.h).
#include <memory>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/base/fd.h"
#include "tutti/transport/link.h"

namespace tutti::transport {

// A connected, non-blocking stream socket as a Link. For TCP it sets TCP_NODELAY and keepalives. `peer_address` is for
// error texts. A peer whose system has acknowledged nothing for `silence` (3 s at least) is lost.
std::unique_ptr<Link> make_tcp_link(Fd socket, std::string peer_address, Duration silence = std::chrono::seconds(30));

}  // namespace tutti::transport
