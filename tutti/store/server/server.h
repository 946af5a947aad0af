#pragma once
// Serves one table to the job, from one thread; alone, or as one of two servers (a primary and its standby).
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tutti/base/error.h"
#include "tutti/store/store.h"
#include "tutti/transport/address.h"
#include "tutti/transport/handshake.h"

namespace tutti {

namespace store {
class ServerThread;
}  // namespace store

// What a server is to its clients.
enum class StoreRole {
  kPrimary,    // it serves
  kStandby,    // it keeps a copy, and sends clients to the primary
  kUndecided,  // the other server is silent and may have taken over: no client is answered until somebody decides
  kDemoted,    // the other server has taken over: this one never serves again
};

// A standby gets every change before the primary's client gets its answer. When the primary's process ends, which its
// closed connection proves, the standby takes over, and clients that know both addresses repeat there what was pending.
// Silence proves nothing: then both stop answering until the majority of the nodes decides which server serves.
// docs/dev/store.md has the rules and the proof that two servers never both serve; replication.h has the code.
//
// Threads: any. The server reads nothing but a handshake (Role::kStore) from a connection that has not passed it; it
// keeps at most 512 such connections (a quarter of the files that the process may have), for 5 s and 256 bytes each.
// The destructor closes all connections (after answers already given have been sent, at most a second): clients get a
// kPeerLost, and calls of local() a kAborted.
class StoreServer {
 public:
  // Listens at exactly `bind`: a TCP address of this machine (port 0: any free one) or a Unix socket. Errors as
  // listen().
  static Result<std::unique_ptr<StoreServer>> start(const transport::Address& bind, transport::Credentials credentials);
  // A standby of the store at `primary`; returns once its copy is complete. kLimit: the primary has a standby already.
  static Result<std::unique_ptr<StoreServer>> follow(const transport::Address& bind, transport::Credentials credentials,
                                                     const transport::Address& primary, Deadline deadline);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Where it listens; with the port that was chosen.
  transport::Address address() const;
  // A Unix socket at which it listens too, from the first call on: for processes of this host and user, whom it serves
  // a third faster than over TCP. It has no file (abstract, transport/address.h), so nothing has to remove it.
  Result<transport::Address> unix_address();
  StoreRole role() const;
  // From now on this server serves without the other one, which never serves again if it is still running. Call it with
  // the majority of the nodes behind you, when the other server is lost. kRefused while the other server was heard less
  // than 2.5 s ago, or if this one is demoted. Harmless if there is nothing to decide.
  Status serve_alone();
  // Whether serve_alone() would decide something: the other server is lost, or was not heard for 2.5 s. Meanwhile no
  // client is answered, and no new client accepted.
  bool in_doubt() const;
  // What the key holds, also in a standby that does not serve: the newest value that it received.
  std::optional<std::string> peek(const std::string& key) const;

  // The same table without a connection. A standby's refuses calls until it serves. May outlive the server, but then
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
  explicit StoreServer(std::unique_ptr<store::ServerThread> thread);
  std::unique_ptr<store::ServerThread> thread_;
};

}  // namespace tutti
