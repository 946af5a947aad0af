#pragma once
// A Store served by a StoreServer in another process (or this one), over TCP or a Unix socket.
#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tutti/base/fd.h"
#include "tutti/base/mutex.h"
#include "tutti/store/request.h"
#include "tutti/store/store.h"
#include "tutti/store/wire.h"
#include "tutti/transport/address.h"
#include "tutti/transport/handshake.h"

namespace tutti {

// Learns of one key being set, without a thread that waits: a connection of its own on which a get() is pending. Poll
// fd() for reading, then try_read(). Closing it ends the wait. Threads: one at a time.
class Watch {
 public:
  // The same number for as long as the watch lives, also where a standby of the store takes over.
  int fd() const { return fd_.get(); }
  // The value once the key exists; none: not yet. An error (kPeerLost: the store has gone) is final, as is the value.
  // If the store has a standby, this call waits for it to take over, at most 10 s.
  std::optional<Result<std::string>> try_read();

 private:
  friend class TcpStore;
  using Reopen = std::function<Result<Fd>(Deadline)>;
  Watch(Fd fd, std::string key, std::string server, Reopen reopen)
      : fd_(std::move(fd)), key_(std::move(key)), server_(std::move(server)), reopen_(std::move(reopen)) {}
  Result<std::optional<std::string>> read();

  Fd fd_;
  std::string key_, server_;
  Reopen reopen_;  // empty: there is no other place to go
  store::wire::FrameReader reader_;
};

// Threads: any; calls are made one after another (clone() for a second connection). A connection that is lost, or left
// in the middle of a frame by a deadline, stays broken: every later call gives the same error.
//
// Given several servers (a primary and its standby, in any order) it finds the one that serves, and switches to the
// other when that one is lost: it repeats pending calls there, and every change is made once. It leaves a server that
// is only silent as soon as the other one serves.
class TcpStore final : public Store {
 public:
  // Waits for a server that is not up yet, until the deadline; a server that refuses us, or speaks another protocol, is
  // an error at once. `rank`: of this process in the world, -1 if it has none yet.
  static Result<std::unique_ptr<TcpStore>> connect(const transport::Address& server,
                                                   const transport::Credentials& credentials, int rank,
                                                   Deadline deadline);
  // One or more servers. kUnreachable names them all.
  static Result<std::unique_ptr<TcpStore>> connect(std::vector<transport::Address> servers,
                                                   const transport::Credentials& credentials, int rank,
                                                   Deadline deadline);
  ~TcpStore() override;

  Result<std::unique_ptr<Store>> clone(Deadline deadline) override;
  // `key` as the server knows it (PrefixStore::full()). `goes_over`: to another server that takes over; else the loss
  // of the server that serves now is an error at once.
  Result<Watch> watch(const std::string& key, Deadline deadline, bool goes_over = true);

  // The server that serves, as far as is known.
  transport::Address server() const;
  const std::vector<transport::Address>& servers() const { return servers_; }
  // The address of this machine that reached the server: the address to advertise.
  transport::Address local_address() const;

 private:
  struct Spin {  // whether looking for the answer without sleeping is worth a try
    int skip = 0, next_skip = 1;
    bool worth_it();
    void paid_off();
    void was_in_vain();
  };
  struct Found {
    Fd fd;
    std::size_t server;  // in servers_
  };

  TcpStore(std::vector<transport::Address> servers, transport::Credentials credentials, int rank);
  Status open(Deadline deadline) TUTTI_REQUIRES(mutex_);
  Result<Found> find(std::size_t first, std::size_t tries, std::uint64_t client, Deadline deadline) const;

  Result<store::Reply> call(const store::Request& request, Deadline deadline, const Waiting& waiting) override;
  Result<store::Reply> converse(std::uint32_t id, const store::Request& request, Deadline deadline,
                                const Waiting& waiting) TUTTI_REQUIRES(mutex_);
  Status send(std::uint32_t id, std::uint8_t kind, std::string_view body, Deadline deadline) TUTTI_REQUIRES(mutex_);
  Result<std::optional<store::wire::Frame>> receive(Deadline deadline, bool may_spin) TUTTI_REQUIRES(mutex_);
  Result<store::Reply> give_up(std::uint32_t id, const store::Request& request, Deadline deadline)
      TUTTI_REQUIRES(mutex_);
  bool other_serves() TUTTI_REQUIRES(mutex_);
  Error break_off(Error error) TUTTI_REQUIRES(mutex_);

  // Of servers_. Read by watch() and server() while a call waits.
  std::atomic<std::size_t> current_ = 0;
  mutable Mutex mutex_;  // one call at a time
  Spin spin_ TUTTI_GUARDED_BY(mutex_);
  Fd fd_ TUTTI_GUARDED_BY(mutex_);
  store::wire::FrameReader reader_ TUTTI_GUARDED_BY(mutex_);
  std::uint32_t next_id_ TUTTI_GUARDED_BY(mutex_) = 1;
  std::optional<Error> broken_ TUTTI_GUARDED_BY(mutex_);

  const std::vector<transport::Address> servers_;
  const transport::Credentials credentials_;
  const int rank_;
  const std::uint64_t client_;  // 0 with one server: nothing is ever repeated
};

// "10.0.0.1:4000,10.0.0.2:4000": what TUTTI_STORE holds.
Result<std::vector<transport::Address>> parse_servers(std::string_view text);
std::string to_string(const std::vector<transport::Address>& servers);

}  // namespace tutti
