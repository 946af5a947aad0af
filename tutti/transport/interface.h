#pragma once
// Which of this machine's addresses is meant by "eth1" or by "10.0.0.0/8": for machines with several networks.
#include <string>
#include <string_view>

#include "tutti/base/error.h"

namespace tutti {

// The numeric address of the interface of that name, or the one that lies in that subnet; IPv4 before IPv6, and never a
// link-local one, which means nothing without a scope. kUsage lists the interfaces and addresses that there are.
Result<std::string> address_at(std::string_view interface_or_subnet);

}  // namespace tutti
