#pragma once
// One client of the store server, let in: what came from it, what is to go to it. Private to store/.
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>

#include "tutti/base/fd.h"
#include "tutti/store/table.h"
#include "tutti/store/wire.h"

namespace tutti {

class StoreConnection {
 public:
  static constexpr std::size_t kMaxOutputBytes = std::size_t(64) << 20;
  using Body = std::shared_ptr<const std::string>;  // shared by the ranks that a barrier sets free

  StoreConnection(Fd fd, std::string peer) : fd_(std::move(fd)), peer_(std::move(peer)) {}

  int fd() const { return fd_.get(); }
  const std::string& peer() const { return peer_; }
  wire::FrameReader& reader() { return reader_; }

  // Queues a frame. kLimit: the client does not read, and too much waits for it already.
  Status queue(std::uint32_t id, std::uint8_t kind, Body body);
  // One that has its header already.
  Status queue_frame(Body frame);
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

}  // namespace tutti
