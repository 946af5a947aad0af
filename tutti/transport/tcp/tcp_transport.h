#pragma once
// Links over TCP: one listening socket a process, one connection for each pair of ranks and each channel.
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/base/fd.h"
#include "tutti/base/log.h"
#include "tutti/base/mutex.h"
#include "tutti/transport/handshake.h"
#include "tutti/transport/link.h"
#include "tutti/transport/socket.h"

namespace tutti::transport {

// Threads: any; connect() calls are carried out one at a time.
class TcpTransport {
 public:
  // Listens on a free port of `bind_host`, a numeric address of this machine.
  static Result<std::unique_ptr<TcpTransport>> open(const std::string& bind_host, Credentials credentials,
                                                    int global_rank);

  // After this long without an acknowledgement a peer's machine counts as lost; 30 s. Before connect().
  void set_peer_timeout(Duration timeout) { peer_timeout_ = timeout; }
  // The number of connections for each pair (striped_link.h); 1. The same on every rank; before connect().
  static constexpr int kMostStreams = 64;
  void set_streams(int streams) { streams_ = streams; }
  // "10.0.0.7:40123": what peers learn through the store.
  std::string contact() const { return to_string(listener_.address); }

  // Links to the ranks of one group, for one channel (a number that says which group and purpose, the same on every
  // rank). `contacts` by group rank; empty: no link wanted (this rank's own is ignored). Of two ranks the higher one
  // connects. Blocks until every link stands; on the deadline the error names the ranks that are missing. A connection
  // of another channel is kept for the call that will want it; one that fails the handshake is dropped, and a line in
  // the log says why.
  Result<std::vector<std::unique_ptr<Link>>> connect(std::span<const std::string> contacts,
                                                     std::span<const int> global_ranks, int my_rank,
                                                     std::uint64_t channel, Deadline deadline);

  // Between calls of connect(): readable when a connection comes in, and now and then while one has not said yet who it
  // is. Then call sweep(), which keeps those that have, and after two seconds closes the others: ranks come again.
  // Blocks for a moment at most.
  int sweep_fd() const { return watch_.get(); }
  void sweep();

 private:
  struct ConnectCall;  // one connect() call
  struct Dialers;      // its threads
  struct HalfOpen {    // a connection that came in and has not passed the handshake yet
    Fd socket;
    std::unique_ptr<ServerHandshake> handshake;
    Deadline deadline;
    Clock::time_point since;
  };

  Result<std::vector<std::unique_ptr<Link>>> connect_once(std::span<const std::string> contacts,
                                                          std::span<const int> global_ranks, int my_rank,
                                                          std::uint64_t channel, Deadline deadline);
  TcpTransport(Listener listener, Credentials credentials, int global_rank, Fd sweep_timer, Fd watch);
  Status start_dialers(ConnectCall& call, std::vector<std::thread>& dialers);
  void dial_all(ConnectCall& call);
  Result<Fd> dial(ConnectCall& call, int rank);
  Status receive(ConnectCall& call);
  Status accept_all(std::size_t expected) TUTTI_REQUIRES(mutex_);
  bool make_room(std::size_t most) TUTTI_REQUIRES(mutex_);
  Error out_of_files(Error error, const ConnectCall& call) const;
  void advance_all(ConnectCall* call) TUTTI_REQUIRES(mutex_);
  void end_connect();
  void prepare_sweep() TUTTI_REQUIRES(mutex_);

  Listener listener_;
  Credentials credentials_;
  int global_rank_;
  int streams_ = 1;
  Duration peer_timeout_ = std::chrono::seconds(30);
  Fd sweep_timer_, watch_;                                    // watch_: of the timer and the listener
  Mutex connecting_;                                          // guards no member: one connect() at a time
  Mutex mutex_;                                               // of what follows; held for a look, never for a wait
  bool is_connecting_ TUTTI_GUARDED_BY(mutex_) = false;       // in a connect()
  std::vector<HalfOpen> half_open_ TUTTI_GUARDED_BY(mutex_);  // the oldest first
  bool crowded_ TUTTI_GUARDED_BY(mutex_) = false;  // strangers take all the room: no connection is accepted for a while
  log::FewWarnings dropped_ TUTTI_GUARDED_BY(mutex_){"connections that were dropped"};
  std::map<std::pair<std::uint64_t, int>, Fd> early_
      TUTTI_GUARDED_BY(mutex_);  // by channel and global rank: let in, not yet wanted
};

}  // namespace tutti::transport
