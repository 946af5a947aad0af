#pragma once
// A Store served by a StoreServer in another process (or this one), over TCP or a Unix socket.
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "tutti/base/fd.h"
#include "tutti/store/table_store.h"
#include "tutti/store/wire.h"
#include "tutti/transport/address.h"
#include "tutti/transport/handshake.h"

namespace tutti {

// Learns of one key being set, without a thread that waits: a connection of its own on which a get() is pending. Poll
// fd() for reading, then try_read(). Closing it ends the wait. Threads: one at a time.
class Watch {
 public:
  int fd() const { return fd_.get(); }
  // The value once the key exists; none: not yet. An error (kPeerLost: the store has gone) is final, as is the value.
  std::optional<Result<std::string>> try_read();

 private:
  friend class TcpStore;
  Watch(Fd fd, std::string key, std::string server)
      : fd_(std::move(fd)), key_(std::move(key)), server_(std::move(server)) {}

  Fd fd_;
  std::string key_, server_;
  wire::FrameReader reader_;
};

// Threads: any; calls are made one after another (clone() for a second connection). A connection that is lost, or left
// in the middle of a frame by a deadline, stays broken: every later call gives the same error.
class TcpStore final : public TableStore {
 public:
  // Waits for a server that is not up yet, until the deadline; one that refuses us, or speaks another protocol, is told
  // at once. `rank`: of this process in the world, -1 if it has none yet.
  static Result<std::unique_ptr<TcpStore>> connect(const Address& server, const Credentials& credentials, int rank,
                                                   Deadline deadline);

  Result<std::unique_ptr<Store>> clone(Deadline deadline) override;
  // `key` as the server knows it (PrefixStore::full()).
  Result<Watch> watch(const std::string& key, Deadline deadline);

  const Address& server() const { return server_; }
  // The address of this machine that reached the server: the one to tell others.
  Address local_address() const;

 private:
  TcpStore(Fd fd, Address server, Credentials credentials, int rank)
      : fd_(std::move(fd)), server_(std::move(server)), credentials_(std::move(credentials)), rank_(rank) {}

  Result<Reply> call(const StoreRequest& request, Deadline deadline, const Waiting& waiting) override;
  Status send(std::uint32_t id, std::uint8_t kind, std::string_view body, Deadline deadline);
  Result<std::optional<wire::Frame>> receive(Deadline deadline, bool may_spin);
  Result<Reply> give_up(std::uint32_t id, const StoreRequest& request, Deadline deadline);
  Error break_off(Error error);

  struct Spin {  // whether looking for the answer without sleeping is worth a try
    int skip = 0, next_skip = 1;
    bool worth_it();
    void paid_off();
    void was_in_vain();
  };

  std::mutex mutex_;  // one call at a time; guards what follows
  Spin spin_;
  Fd fd_;
  wire::FrameReader reader_;
  std::uint32_t next_id_ = 1;
  std::optional<Error> broken_;

  const Address server_;
  const Credentials credentials_;
  const int rank_;
};

}  // namespace tutti
