#pragma once
// A send or receive of GPU memory between ranks of one host: the receiver copies from the sender's memory.
// ipc_message.cc explains how.
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "tutti/comm/cuda/ipc_memory.h"
#include "tutti/comm/cuda/pool.h"
#include "tutti/comm/cuda/staged_operation.h"
#include "tutti/comm/links/point_to_point.h"
#include "tutti/comm/operation.h"
#include "tutti/comm/request.h"

namespace tutti::cuda {

// What the messages of a group share. Used by the driver only.
class IpcPairs {
 public:
  // Of a pair: this rank's memory is that of rank kMine, the peer's that of rank kTheirs.
  static constexpr int kMine = 0, kTheirs = 1;
  explicit IpcPairs(std::string group) : group_(std::move(group)) {}
  OpenMemory& with(int peer) { return pairs_.try_emplace(peer, kMine, 2).first->second; }
  // Logs the first reason why a message was staged.
  void report(const std::string& why);

 private:
  const std::string group_;
  std::map<int, OpenMemory> pairs_;  // both directions
  bool has_reported_ = false;
};

// How messages with notes start on the host (point_to_point.h).
struct NotedMessages {
  std::function<bool(int peer)> reach;  // empty: nobody
  std::function<std::unique_ptr<comm::NotedSend>(const Request& request, std::uint64_t sequence,
                                                 const comm::Note& note)>
      send;
  std::function<std::unique_ptr<comm::NotedRecv>(const Request& request, std::uint64_t sequence)> recv;
};

struct MessageSetup {
  const Runtime* runtime = nullptr;
  std::shared_ptr<Pool> pool;
  std::shared_ptr<IpcPairs> pairs;
  const NotedMessages* messages = nullptr;
  std::map<int, SendTurns>* turns = nullptr;  // by peer; those of the staged sends
  int rank = 0, size = 1;
};

// Whether the elements are worth it. A message that fits into the link stays staged: its send ends before the receiver
// calls.
bool is_large_message(const Request& request);

// As start_staged(). The receiver of a large message starts a receive like this even if its sender may be on another
// host. Null, and nothing is started: CUDA does not share the memory of this send.
Result<std::unique_ptr<comm::Operation>> start_message_by_ipc(const MessageSetup& setup, const Request& request,
                                                              std::uint64_t sequence, Event& ready);

}  // namespace tutti::cuda
