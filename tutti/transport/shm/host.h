#pragma once
// The ranks of one host, as one of them sees them: every rank's arena, mapped, its bell, and whether it is still alive.
//
// Joining: each rank listens on a Unix socket that is in no folder, connects to the ranks below it, passes the
// handshake of the job, and hands over two descriptors, its arena and its bell: nothing else has a name. The sockets
// stay open: an end of file without a goodbye is the death of that rank. Threads: after join() any thread
// may call everything.
#include <poll.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/base/mutex.h"
#include "tutti/transport/bell.h"
#include "tutti/transport/handshake.h"
#include "tutti/transport/shm/arena.h"
#include "tutti/transport/socket.h"

namespace tutti::transport {

class Host {
 public:
  enum class Peer : std::uint8_t { kAlive, kLeft, kFled, kLost };  // kFled: it left because of an exception

  ~Host();  // says no goodbye

  // First half of joining: opens this rank's socket. contact() is what the others need to know.
  static Result<std::unique_ptr<Host>> open(const Credentials& credentials, int global_rank);
  const std::string& contact() const { return contact_; }
  // Second half: `contacts` and `global_ranks` of all ranks of this host, by local rank. `heap_limit`: bytes to reserve
  // for this rank's own arena; the ranks need not agree on it. Errors name the peer.
  Status join(const std::vector<std::string>& contacts, const std::vector<int>& global_ranks, int local_rank,
              std::size_t heap_limit, Deadline deadline);

  // Hosts of `size` ranks that are threads of this process, sharing the same mappings.
  static Result<std::vector<std::unique_ptr<Host>>> inproc(int size, std::size_t heap_limit);

  int rank() const { return rank_; }
  int size() const { return int(peers_.size()); }
  Arena& arena() { return *peers_[rank_].arena; }
  std::byte* base(int local_rank) const { return peers_[local_rank].arena->base(); }
  std::size_t reserved(int local_rank) const { return peers_[local_rank].arena->reserved(); }  // bytes of its arena
  // Which rank's arena holds [p, p + bytes), and where; -1 where none does.
  struct ArenaAddress {
    int owner = -1;
    std::size_t offset = 0;
  };
  ArenaAddress find(const void* p, std::size_t bytes) const;

  Bell bell(int local_rank) const { return peers_[local_rank].bell; }
  BellLine& own_bell_line() { return *peers_[rank_].line; }
  int own_bell_fd() const { return peers_[rank_].event_fd; }

  Peer state(int local_rank) const { return peers_[local_rank].state->load(std::memory_order_acquire); }
  pid_t pid(int local_rank) const { return peers_[local_rank].pid; }
  int global_rank(int local_rank) const { return peers_[local_rank].global_rank; }

  // Adds the descriptors on which a death or a goodbye shows, for poll(), and the local ranks that they belong to.
  void add_watched(std::vector<pollfd>& fds, std::vector<int>& local_ranks) const;
  // The descriptor of `local_rank` is readable: what became of it. Any thread.
  Peer watch(int local_rank);
  // Tells the peers that this rank leaves, in peace or not.
  void goodbye(bool in_flight);
  // Threads as ranks: this rank "dies" (tests).
  void die();

 private:
  struct PeerData {
    std::shared_ptr<Arena> arena;
    BellLine* line = nullptr;
    int event_fd = -1;
    std::shared_ptr<Fd> event_owner;
    Bell bell;
    pid_t pid = 0;
    int global_rank = -1;
    std::unique_ptr<Fd> socket;
    std::shared_ptr<std::atomic<Peer>> state;
  };

  struct HalfOpen {  // a connection that came in and has not passed the handshake yet
    Fd socket;
    std::unique_ptr<ServerHandshake> handshake;
    Deadline deadline;
  };

  Host() = default;
  std::vector<int> missing_callers() const;
  Status answer(const std::vector<int>& global_ranks, const std::function<Status(const Status&, int)>& about,
                Deadline deadline);
  void settle_fences();
  Status introduce(int local_rank, Fd socket, Deadline deadline);

  int rank_ = 0;
  int global_rank_ = 0;
  std::unique_ptr<Credentials> credentials_;
  Listener listener_;
  std::vector<HalfOpen> half_open_;  // while joining
  std::string contact_;
  std::vector<PeerData> peers_;
  Mutex watch_mutex_;  // guards no member: one thread at a time reads a note and stores what it says
};

}  // namespace tutti::transport
