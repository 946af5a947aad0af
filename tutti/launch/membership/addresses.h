#pragma once
// Addresses of this host that other nodes are given.
#include <string>

#include "tutti/base/error.h"

namespace tutti::launch {

// The numeric address that this host speaks from to the first of `endpoints` ("10.0.0.5:2379", "https://etcd:2379",
// several with commas) that it has a route to. Sends nothing. kUnreachable names them all.
Result<std::string> own_address_toward(const std::string& endpoints);

// A port of this host that a program can bind: `wanted`, or any with 0. It is closed again at once. Errors as listen().
Result<int> free_port(const std::string& host, int wanted = 0);

}  // namespace tutti::launch
