#pragma once
// An operation in flight: a cursor that moves when it is stepped and never blocks, so that one thread can drive many,
// and deadline, abort and waiting are written once, in the engine.
#include <poll.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/transport/link.h"

namespace tutti {

// What a blocked operation waits for: descriptors to poll, and ranks (of the group) whose arrival it needs.
struct Blockers {
  std::vector<pollfd> fds;
  std::vector<int> ranks;   // ranks of the group that have to act before this rank can go on
  bool needs_bell = false;  // whether any of them is in shared memory and will ring this rank's bell
  bool on_device = false;   // for work on a GPU, be it what the caller had put on its stream before
  bool much = false;        // so many bytes are on their way that who looks again at once finds a few of them
  bool carried = false;     // by another library (comm/backends): a rank that has left may have done its part
  Duration look_again{};    // 0: what moves will ring, or make a descriptor ready. Else only looking tells, this often

  void clear() {
    fds.clear();
    ranks.clear();
    needs_bell = on_device = much = carried = false;
    look_again = {};
  }
  // For `events`, POLLIN or POLLOUT or both, of a blocked link to this rank of the group, from which so many bytes are
  // awaited.
  void add(int rank, Link& link, short events, std::size_t bytes = 1) {
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

class Operation {
 public:
  virtual ~Operation() = default;
  // One thread at a time. An Error ends the operation; buffers are then undefined.
  virtual Result<Progress> step() = 0;
  // After kBlocked: whether a rank that is awaited ran last on the core that this thread runs on, and so may need it.
  // None: not known.
  virtual std::optional<bool> awaits_this_core() const { return std::nullopt; }
  // Whether the order of the group's collectives no longer hangs on this one: what is left happens on a GPU, in an
  // order of its own. Then the next one is started beside it.
  virtual bool lets_next_start() const { return false; }
  // After kBlocked: what is awaited. Adds to `blockers`.
  virtual void blockers(Blockers& blockers) const = 0;
};

}  // namespace tutti
