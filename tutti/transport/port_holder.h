#pragma once
// Which process listens at a TCP port, as far as /proc lets this user see. Private to transport/.
#include <string>

#include "tutti/transport/address.h"

namespace tutti {

// "pid 1234 (python3 train.py)", "a process of user postgres", or empty if /proc does not tell.
std::string port_holder(const Address& address);

}  // namespace tutti
