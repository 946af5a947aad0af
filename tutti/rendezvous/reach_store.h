#pragma once
// How a rank reaches the store that all ranks share, once it knows who it is (identity.h): rank 0 serves the store
// unless an agent does, and all other ranks connect to it.
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/store/server/server.h"
#include "tutti/store/store.h"
#include "tutti/transport/address.h"
#include "tutti/transport/handshake.h"

namespace tutti::rendezvous {

struct ReachedStore {
  std::unique_ptr<StoreServer> server;  // rank 0's, unless an agent serves; destroyed after `store`
  std::unique_ptr<Store> store;
  transport::Address address;  // of the server; empty for a file
  std::vector<transport::Address>
      stores;              // where `store` was reached, for further connections of this rank; empty for a file
  std::string local_host;  // numeric address of this machine that reached it; empty where no network was used
};

// Over TCP or a Unix socket: RendezvousMethod::kAgent, kTcp, kPorts and kUnix. `identity.address` holds the address
// (for kUnix: the path of the socket). Errors name the address, the variable it came from, and how long was tried.
Result<ReachedStore> reach_served_store(const Identity& identity, const transport::Credentials& credentials,
                                        Deadline deadline);

// In the file at `identity.path`. The ranks share the secret through the file, which only this user may read or write
// (else kRefused); it replaces `credentials.secret` unless `secret_given`.
Result<ReachedStore> reach_store_file(const Identity& identity, transport::Credentials& credentials, bool secret_given,
                                      Deadline deadline);

// Fills in the operation and the rank of an error of one rank's join where they are missing.
Error joining_error(Error error, const Identity& identity);

// A loopback address that somebody wrote, as a name or as a number.
bool is_loopback_text(const transport::Address& address);

// The addresses at which rank 0 may serve: the numeric addresses of this machine that `wanted` (a name or an address)
// stands for, the best first; never empty and never the wildcard. What rank 0 binds is what the other ranks dial, so
// they must be able to reach it. `source` names the variable or URL in errors. kUsage: `wanted` is no address of this
// machine (the error lists those that are), or the ranks are on several hosts and only loopback is left. A name of this
// machine that /etc/hosts makes loopback stands for the address that other hosts most likely have for it; a warning
// shows the line.
Result<std::vector<transport::Address>> serving_addresses(const transport::Address& wanted, const std::string& source,
                                                          Identity::OneHost one_host);

// "127.0.1.1 node1 (line 2 of /etc/hosts)": the line of a hosts file that makes `name` a loopback address; empty if
// none does.
std::string loopback_line(const std::string& name, const std::string& hosts_text);
// What other hosts are given in its place: this machine's only IPv4 address but loopback, or of several that of its
// default route; empty: none.
std::string address_for_others();

}  // namespace tutti::rendezvous
