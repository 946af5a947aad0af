#pragma once
// Which machine this process is on.
#include <string>

namespace tutti {

// For people: two machines may have one name.
std::string host_name();
// Equal for two processes that share a kernel since its start, and so its cores and devices, in whatever containers.
std::string boot_id();
// Equal for two processes that share a kernel since its start and a network: they can share memory, and reach one
// another over loopback. Different for two containers of one machine, unless these share its network.
std::string machine_id();

}  // namespace tutti
