#pragma once
// Where a socket is: a TCP address with a numeric host, or the path of a Unix socket; and which addresses this machine
// has.
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"

namespace tutti::transport {

struct Address {
  std::string host;        // TCP: numeric IPv4 or IPv6 (or a name, before resolve()); empty for a Unix socket
  std::uint16_t port = 0;  // TCP; 0 when binding: any free port
  std::string path;        // Unix socket

  bool is_unix() const { return !path.empty(); }
  bool is_v6() const { return host.find(':') != std::string::npos; }
  bool operator==(const Address&) const = default;
};

// "10.0.0.7:4123", "[fe80::1]:80", "unix:/run/user/0/x". A TCP text without a port takes `default_port`.
Result<Address> parse_address(std::string_view text, std::uint16_t default_port = 0);
std::string to_string(const Address& address);

// Abstract Unix sockets (man 7 unix) have a name and no file: "unix:@tutti-9c1e...", as ss and /proc/net/unix write
// them. However their process ends, nothing of them is left. Every process in this network namespace sees the name and
// may dial or take it, so accept() checks who connects, and connect() who listens.
bool is_abstract(const Address& address);
// A new random name.
Address new_abstract_address();

// Every numeric address of a host name, in the system's order (numeric text stays itself). Errors name the host.
Result<std::vector<Address>> resolve(const Address& address);
bool is_loopback(const Address& numeric);
// 0.0.0.0 or ::, however it is written ("0" is 0.0.0.0 as well): to bind it means all addresses, to dial it none.
bool is_wildcard(const Address& numeric);
// Numeric addresses of this machine's interfaces that are up, loopback last: what "bind to one of these" lists.
std::vector<std::string> local_addresses();
bool is_local_address(const std::string& numeric_host);
// An address of an interface that is up.
struct InterfaceAddress {
  std::string interface;
  std::string host;
  int prefix = 0;              // leading bits that all addresses of its subnet have
  bool is_link_local = false;  // IPv6 only

  bool operator==(const InterfaceAddress&) const = default;
};
// Those of this machine, in the system's order, which is the same after each start.
std::vector<InterfaceAddress> interface_addresses();
// Whether `host` is a numeric address in the subnet of `address`.
bool in_subnet_of(const InterfaceAddress& address, const std::string& host);
// The numeric address of the interface of that name ("eth1"), or the one in that subnet ("10.0.0.0/8"): for machines
// with several networks. IPv4 before IPv6, and never a link-local one, which means nothing without a scope. kUsage
// lists this machine's interfaces and addresses.
Result<std::string> address_at(std::string_view interface_or_subnet);
// Likewise among the addresses of another machine.
Result<std::string> address_at(std::string_view interface_or_subnet, std::vector<InterfaceAddress> all);
// The interface over which this machine reaches `host`, a name or a number: "eth0". For an address of this machine,
// the interface that has it. Empty: no route, or only loopback.
std::string interface_towards(const std::string& host);

// An Address as the kernel's sockaddr, for code that makes sockets of its own.
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

}  // namespace tutti::transport
