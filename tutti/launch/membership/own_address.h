#pragma once
// The address of this host by which it reaches others.
#include <string>

#include "tutti/base/error.h"

namespace tutti {

// The numeric address that this host speaks from to the first of `endpoints` ("10.0.0.5:2379", "https://etcd:2379",
// several with commas) that it has a way to. Sends nothing. kUnreachable names them all.
Result<std::string> own_address_toward(const std::string& endpoints);

}  // namespace tutti
