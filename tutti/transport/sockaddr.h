#pragma once
// Between Address and the kernel's sockaddr, for who makes sockets that transport/ has no function for.
#include <sys/socket.h>

#include "tutti/transport/address.h"

namespace tutti {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = sizeof(sockaddr_storage);

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  int family() const { return storage.ss_family; }
};

// Of a numeric TCP address or a Unix path. A name, or a path that does not fit, is kInvalidArgument.
Result<SocketAddress> to_socket_address(const Address& address);
Address from_socket_address(const SocketAddress& from);

}  // namespace tutti
