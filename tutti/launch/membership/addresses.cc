// Connecting a UDP socket asks the routing table and sends no packet.
#include "tutti/launch/membership/addresses.h"

#include <sys/socket.h>

#include <cerrno>

#include "tutti/base/fd.h"
#include "tutti/base/text.h"
#include "tutti/transport/address.h"
#include "tutti/transport/socket.h"

namespace tutti::launch {
namespace {

constexpr std::uint16_t kAnyPort = 9;  // a route needs one; nothing is sent there

Result<std::string> own_address_toward(const transport::Address& there) {
  const auto to = TUTTI_TRY(transport::to_socket_address(there));
  const Fd socket(::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  transport::SocketAddress own;
  if (!socket || ::connect(socket.get(), to.get(), to.length) != 0 ||
      ::getsockname(socket.get(), own.get(), &own.length) != 0)
    return system_error(errno, "no route to " + there.host);
  return transport::from_socket_address(own).host;
}

}  // namespace

Result<std::string> own_address_toward(const std::string& endpoints) {
  std::string last;
  for (const std::string& part : split(endpoints, ',')) {
    const auto scheme = part.find("://");
    const std::string text = scheme == std::string::npos ? part : part.substr(scheme + 3);
    const auto named = transport::parse_address(text.substr(0, text.find('/')), kAnyPort);
    const auto addresses = named.ok() ? resolve(*named) : Result<std::vector<transport::Address>>(named.error());
    if (!addresses.ok()) {
      last = addresses.error().detail;
      continue;
    }
    for (const transport::Address& address : *addresses) {
      auto own = own_address_toward(address);
      if (own.ok()) return own;
      last = own.error().detail;
    }
  }
  return Error{.code = Code::kUnreachable, .detail = "this host has no address toward " + endpoints + ": " + last};
}

Result<int> free_port(const std::string& host, int wanted) {
  const auto listener = listen(transport::Address{.host = host, .port = std::uint16_t(wanted)});
  if (!listener.ok()) return listener.error();
  return int(listener->address.port);
}

}  // namespace tutti::launch
