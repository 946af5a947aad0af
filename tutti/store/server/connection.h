#pragma once
// The clients of a store server that passed the handshake, and the calls that they have open. Private to store/server/.
// Threads: the server's.
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tutti/base/fd.h"
#include "tutti/store/shared_table.h"
#include "tutti/store/table.h"
#include "tutti/store/wire.h"
#include "tutti/transport/event_loop.h"
#include "tutti/transport/handshake.h"

namespace tutti::store {

class Replication;

// One connection: what came from it, and what is to go to it.
class Connection {
 public:
  static constexpr std::size_t kMaxOutputBytes = std::size_t(64) << 20;
  using Body = std::shared_ptr<const std::string>;  // shared by the ranks that a barrier sets free

  Connection(Fd fd, std::string peer) : fd_(std::move(fd)), peer_(std::move(peer)) {}

  int fd() const { return fd_.get(); }
  const std::string& peer() const { return peer_; }
  wire::FrameReader& reader() { return reader_; }

  // Queues a frame. kLimit: the client does not read, and too much waits for it already.
  Status queue(std::uint32_t id, std::uint8_t kind, Body body);
  // A frame that belongs to no call.
  Status queue(wire::Kind kind, std::string body = {});
  // A frame with its header.
  Status queue_frame(std::string frame);
  // Sends what the socket takes now.
  Status flush();
  bool has_output() const { return !output_.empty(); }

  std::unordered_map<std::uint32_t, Table::Ticket> open_calls;  // by the client's id
  std::uint64_t client = 0;                                     // of the session; 0: none
  std::size_t output_limit = kMaxOutputBytes;                   // beyond it the other end does not read
  bool wants_write = false;                                     // whether the loop watches for room in the socket

 private:
  struct Chunk {
    std::string header;
    Body body;
    std::size_t sent = 0;
    std::size_t size() const { return header.size() + body->size(); }
  };

  Status queue(Chunk chunk);

  Fd fd_;
  std::string peer_;
  wire::FrameReader reader_;
  std::deque<Chunk> output_;
  std::size_t output_bytes_ = 0;
};

// All connections. A frame becomes a request to the table; the table's answers, to this client or to others, become
// frames.
class Clients {
 public:
  Clients(transport::EventLoop& loop, SharedTable& table, Replication& replication)
      : loop_(loop), table_(table), replication_(replication) {}

  // Takes over a connection that passed the handshake.
  void add(Fd fd, const transport::Hello& hello, const std::string& peer);
  // Queues each answer for the client that waits for it, and sends what the sockets take.
  void deliver(const std::vector<Table::Answer>& answers);
  // Sends what the socket takes now; the rest goes when there is room again.
  void send(Connection& connection);
  // Ends a connection: now, or, where a caller up the stack may still use it, once drop_marked() is called.
  void drop(int fd, const Error& why);
  void drop_later(int fd, Error why) { marked_.emplace_back(fd, std::move(why)); }
  void drop_all_later(const Error& why);
  void drop_marked();
  // Sends what is queued, until the deadline, and waits where a socket has no room.
  void flush_all(Deadline deadline);
  void close_all() { connections_.clear(); }

  // Any thread.
  std::uint64_t dropped() const { return dropped_.load(); }  // for what they sent or did not read
  std::uint64_t calls() const { return calls_.load(); }

 private:
  struct Owner {  // of a ticket
    int fd;
    std::uint32_t id;
  };

  void on_ready(int fd, std::uint32_t events);
  Status read(Connection& connection);
  Status obey(Connection& connection, const wire::Frame& frame);
  Status open_session(Connection& connection, const wire::Frame& frame);
  Status answer_about_call(Connection& connection, const wire::Frame& frame);
  Status submit(Connection& connection, const wire::Frame& frame);

  transport::EventLoop& loop_;
  SharedTable& table_;
  Replication& replication_;
  std::unordered_map<int, std::unique_ptr<Connection>> connections_;
  std::unordered_map<Table::Ticket, Owner> owners_;
  std::unordered_map<std::uint64_t, int> sessions_;  // the connection of each client that has one
  std::vector<std::pair<int, Error>> marked_;        // to drop
  std::atomic<std::uint64_t> dropped_{0}, calls_{0};
};

}  // namespace tutti::store
