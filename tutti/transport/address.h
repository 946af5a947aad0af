#pragma once
// Where a socket is: a TCP address with a numeric host, or the path of a Unix socket.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

struct Address {
  std::string host;        // TCP: numeric IPv4 or IPv6 (or a name, before resolve()); empty for a Unix socket
  std::uint16_t port = 0;  // TCP; 0 when binding: any free port
  std::string path;        // Unix socket

  bool is_unix() const { return !path.empty(); }
  bool operator==(const Address&) const = default;
};

// "10.0.0.7:4123", "[fe80::1]:80", "unix:/run/user/0/x". A TCP text without a port takes `default_port`.
Result<Address> parse_address(std::string_view text, std::uint16_t default_port = 0);
std::string to_string(const Address& address);

// Every numeric address of a host name, in the system's order (numeric text stays itself). Errors name the host.
Result<std::vector<Address>> resolve(const Address& address);
bool is_loopback(const Address& numeric);
// 0.0.0.0 or ::, however it is written ("0" is 0.0.0.0 as well): to bind it means all addresses, to dial it none.
bool is_wildcard(const Address& numeric);
// Numeric addresses of this machine's interfaces that are up, loopback last: what "bind to one of these" lists.
std::vector<std::string> local_addresses();
bool is_local_address(const std::string& numeric_host);

}  // namespace tutti
