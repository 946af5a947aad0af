#pragma once
// Serves one table to the job, from one thread.
#include <cstdint>
#include <memory>

#include "tutti/base/error.h"
#include "tutti/store/store.h"
#include "tutti/transport/address.h"
#include "tutti/transport/handshake.h"

namespace tutti {

// Threads: any. Only peers that pass the handshake (Role::kStore) get a word in; before it at most 64 are kept, for 5 s
// and 256 bytes each. Its end closes all connections (after answers already given have been sent, at most a second):
// clients get a kPeerLost, and calls of local() a kAborted.
class StoreServer {
 public:
  // Listens at exactly `bind`: a TCP address of this machine (port 0: any free one) or a Unix socket. Errors as
  // listen().
  static Result<std::unique_ptr<StoreServer>> start(const Address& bind, Credentials credentials);
  ~StoreServer();
  StoreServer(const StoreServer&) = delete;
  StoreServer& operator=(const StoreServer&) = delete;

  // Where it listens; with the port that was chosen.
  Address address() const;
  // Listens at a second place too, say a Unix socket for the ranks of this host. Gives the address as bound.
  Result<Address> also_listen(const Address& bind);
  // The same table without a connection. May outlive the server, but then only gives errors.
  std::unique_ptr<Store> local();

  struct Counts {
    std::uint64_t let_in = 0;       // connections that passed the handshake
    std::uint64_t turned_away = 0;  // that did not
    std::uint64_t dropped = 0;      // let in, then dropped for what they sent or did not read
    std::uint64_t calls = 0;
  };
  Counts counts() const;

 private:
  class Thread;
  explicit StoreServer(std::unique_ptr<Thread> thread);
  std::unique_ptr<Thread> thread_;
};

}  // namespace tutti
