#pragma once
// An operation in flight: a cursor that moves when it is stepped and never blocks. So one thread can drive many, and
// deadlines, aborts and waiting are written once (comm/group/call_queue.h).
#include <poll.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/transport/link.h"

namespace tutti::comm {

// What a blocked operation waits for: descriptors to poll, and ranks of the group that have to act.
struct Blockers {
  std::vector<pollfd> fds;
  std::vector<int> ranks;   // of the group
  bool needs_bell = false;  // whether any of them is in shared memory and will ring this rank's bell
  bool on_device = false;   // waits for work on a GPU, perhaps what the caller put on its stream before
  bool much = false;        // enough data is in flight that polling again now will find some
  bool in_turn = false;     // runs on the GPU behind another operation of the group, which says what it waits for
  bool carried = false;     // by another library (comm/backends): a rank that has left may have done its part
  Duration look_again{};  // 0: progress rings the bell or makes a descriptor ready. Else it has to be polled this often

  void clear() {
    fds.clear();
    ranks.clear();
    needs_bell = on_device = much = in_turn = carried = false;
    look_again = {};
  }
  // For `events`, POLLIN or POLLOUT or both, of a blocked link to `rank` of the group, from which `bytes` are awaited.
  void add(int rank, transport::Link& link, short events, std::size_t bytes = 1) {
    ranks.push_back(rank);
    if (link.poll_fd() >= 0) {
      constexpr std::size_t kMuch = 16 << 10;
      if (events & POLLIN) link.wake_at(bytes);
      much = much || (events & POLLOUT) || bytes >= kMuch;
      return link.add_polls(events, fds);
    }
    needs_bell = true;
    if (const auto due = link.look_again()) look_again = look_again.count() ? std::min(look_again, *due) : *due;
  }
};

enum class Progress {
  kBlocked,  // nothing moved; see blockers()
  kMoved,    // something moved; step again
  kDone,     // finished: buffers are valid and no longer used
};

enum class Hold {
  kNever,   // it ends on the host
  kNotYet,  // step again
  kHeld,
};

class Operation {
 public:
  virtual ~Operation() = default;
  // One thread at a time. An Error ends the operation; buffers are then undefined.
  virtual Result<Progress> step() = 0;
  // After kBlocked: whether an awaited rank ran last on the core of this thread, and so may need it. None: not known.
  virtual std::optional<bool> awaits_this_core() const { return std::nullopt; }
  // Whether the order of the group's collectives no longer depends on this one: the rest happens on a GPU, in an order
  // of its own. Then the next collective starts beside it.
  virtual bool lets_next_start() const { return false; }
  // Makes what is put on a stream of the GPU from now on run after the operation, once that is on a stream itself.
  virtual Hold hold(void* /*stream*/) const { return Hold::kNever; }
  // After kBlocked: adds what is awaited.
  virtual void blockers(Blockers& blockers) const = 0;
};

// An operation that has started. `owned` is null if its maker keeps it for the next call of its kind.
struct StartedOperation {
  Operation* operation = nullptr;
  std::unique_ptr<Operation> owned;
  StartedOperation() = default;
  explicit StartedOperation(Operation* kept) : operation(kept) {}
  explicit StartedOperation(std::unique_ptr<Operation> made) : operation(made.get()), owned(std::move(made)) {}
};

}  // namespace tutti::comm
