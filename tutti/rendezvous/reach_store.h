#pragma once
// The step between "where we meet" and the roll call: this rank reaches the common store, serving it first if that is
// its part.
#include <memory>
#include <string>

#include "tutti/base/deadline.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/store/server/server.h"
#include "tutti/store/store.h"
#include "tutti/transport/handshake.h"

namespace tutti {

struct MeetingPoint {
  std::unique_ptr<StoreServer> server;  // rank 0's, unless an agent serves; destroyed after `store`
  std::unique_ptr<Store> store;
  Address address;              // of the server; empty for a file
  std::vector<Address> stores;  // where `store` was reached, for further connections of this rank; likewise
  std::string local_host;       // numeric address of this machine that reached it; empty where no network was used
};

// Over TCP or a Unix socket, for Meeting::kServed, kTcp, kPorts and kLocal. `identity.address` holds the place (for
// kLocal: the path of the socket). Errors name the place, the variable it came from, and how long was tried.
Result<MeetingPoint> meet_at_server(const Identity& identity, const Credentials& credentials, Deadline deadline);

// In the file at `identity.path`. The ranks share the secret through the file, which only this user may read
// or write (else kRefused); `credentials.secret` is replaced by it unless `secret_given`.
Result<MeetingPoint> meet_in_file(const Identity& identity, Credentials& credentials, bool secret_given,
                                  Deadline deadline);

// An Error of one rank's joining: the operation and the rank are filled in where they are not.
Error joining_error(Error error, const Identity& identity);

}  // namespace tutti
