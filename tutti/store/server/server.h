#pragma once
// Serves one table to the job, from one thread.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tutti/base/error.h"
#include "tutti/store/store.h"
#include "tutti/transport/address.h"
#include "tutti/transport/handshake.h"

namespace tutti {

class StoreServerThread;

// What a server is to its clients.
enum class StoreRole {
  kPrimary,    // it serves
  kFollower,   // it keeps a copy, and sends clients to the primary
  kUndecided,  // the other of the two is silent and may have gone on: nobody is answered until somebody decides
  kDeposed,    // the other has gone on: this one never serves again
};

// Two servers may share the work of remembering: a primary and a follower, which gets every change before the primary's
// client gets its answer. If the primary's process ends, which its closed connection tells, the follower serves, and
// clients that know both addresses repeat there what was pending. Silence tells nothing: then both stop answering until
// the majority of the nodes says which one goes on. docs/store.md has the rules and why two halves never both go on.
//
// Threads: any. Only peers that pass the handshake (Role::kStore) get a word in; before it at most 512 are kept (a
// quarter of the files that the process may have), for 5 s and 256 bytes each. Its end closes all connections (after
// answers already given have been sent, at most a second): clients get a kPeerLost, and calls of local() a kAborted.
class StoreServer {
 public:
  // Listens at exactly `bind`: a TCP address of this machine (port 0: any free one) or a Unix socket. Errors as
  // listen().
  static Result<std::unique_ptr<StoreServer>> start(const Address& bind, Credentials credentials);
  // Keeps a copy of the store at `primary`; returns once it is complete. kLimit: the primary has a follower already.
  static Result<std::unique_ptr<StoreServer>> follow(const Address& bind, Credentials credentials,
                                                     const Address& primary, Deadline deadline);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Where it listens; with the port that was chosen.
  Address address() const;
  // A Unix socket at which it listens too, from the first call on: for processes of this host and user, whom it serves
  // a third faster than over TCP. It is in no folder (abstract_socket.h), so nobody has to remove it.
  Result<Address> unix_address();
  StoreRole standing() const;
  // To be called with the majority of the nodes behind it, when the other server is lost: a follower serves from now
  // on, a primary goes on without its follower. The other one, should it live, never serves again. kRefused while the
  // other was heard less than 2.5 s ago, or when this one is deposed. Harmless if nothing is to be decided.
  Status go_on();
  // Whether go_on() would decide something: the other one is lost, or was not heard for 2.5 s. Then nobody is answered,
  // and no new client is let in.
  bool in_doubt() const;
  // What the key holds, also where a follower has it and does not serve: the newest that it was told.
  std::optional<std::string> peek(const std::string& key) const;

  // The same table without a connection. A follower's refuses calls until it serves. May outlive the server, but then
  // only gives errors.
  std::unique_ptr<Store> local();

  struct Counts {
    std::uint64_t let_in = 0;       // connections that passed the handshake
    std::uint64_t turned_away = 0;  // that did not
    std::uint64_t dropped = 0;      // let in, then dropped for what they sent or did not read
    std::uint64_t calls = 0;
  };
  Counts counts() const;

 private:
  explicit StoreServer(std::unique_ptr<StoreServerThread> thread);
  std::unique_ptr<StoreServerThread> thread_;
};

}  // namespace tutti
