#pragma once
// Where rank 0 may serve: bind and advertise are two things, but what rank 0 binds is what the others dial, so it must
// be an address of this machine that they can reach.
#include <string>
#include <vector>

#include "tutti/rendezvous/identity.h"
#include "tutti/transport/address.h"

namespace tutti {

// The numeric addresses of this machine that `wanted` (a name or an address) stands for, the best first; never empty
// and never the wildcard. `source` names the variable or URL in errors. kUsage: it is no address of this machine (those
// that are, are listed), or the ranks are on several hosts and only loopback is left (the line of /etc/hosts to change
// is shown).
Result<std::vector<Address>> serving_addresses(const Address& wanted, const std::string& source,
                                               Identity::OneHost one_host);

// "127.0.1.1 node1 (line 2 of /etc/hosts)": the line of a hosts file that makes `name` a loopback address; empty if
// none does.
std::string loopback_line(const std::string& name, const std::string& hosts_text);

}  // namespace tutti
