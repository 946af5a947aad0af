#pragma once
// The address of the first host, where node 0 serves and the others connect.
#include <span>
#include <string>

#include "tutti/launch/ssh/protocol.h"

namespace tutti::launch {

struct GreetedHost {
  std::string name;  // as the user lists it
  Greeting greeting;
};

// With `iface`, an interface or a subnet, the address that the first host has there. Otherwise the address at which ssh
// reached it. If that is this host's own loopback, the others reach this host at another address: the one from which
// ssh came to them. A command in place of ssh may report neither; then an address of the first host in a subnet of all
// others. kUsage names the addresses of the first host if none of these is known.
Result<std::string> master_address_of(std::span<const GreetedHost> hosts, const std::string& iface);

}  // namespace tutti::launch
