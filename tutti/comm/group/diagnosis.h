#pragma once
// What a call that waits for long can say about the ranks it waits for: which are stopped, which make another call, and
// which give no answer.
//
// A question to the store may take seconds, and /proc milliseconds for each rank of a host. So nothing here runs on the
// thread that drives the group, nor under its locks: warn() and compare() return at once and leave the work to threads
// of their own. Each question has a deadline: however slow the store is, it is given up after `patience` and the store
// call that is then under way.
//
// Keys in the store, one for each rank of a group:
//   call/GROUP/RANK    the collective in which the rank has waited for a second
//   waits/GROUP/RANK   the call in which the rank was when the group failed
#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/thread.h"
#include "tutti/comm/group/peers.h"
#include "tutti/comm/operation.h"
#include "tutti/comm/request.h"

namespace tutti::comm {

// "ranks 1-3", what a blocked operation of `request` waits for.
std::string awaited_text(const Request& request, const comm::Blockers& blockers);

class Diagnosis {
 public:
  // A collective that waits.
  struct Call {
    std::uint64_t sequence = 0;
    std::string signature;     // what has to be the same on every rank
    std::string text;          // as an error shows the call
    std::vector<int> awaited;  // ranks
  };

  // `store`: null: nobody is asked. mismatch_found: called by any thread when mismatch() has something new.
  Diagnosis(const GroupSpec& spec, const Peers& peers, Store* store, std::function<void()> mismatch_found,
            Duration patience = std::chrono::seconds(2));

  // Logs `text`, and which ranks of this host are stopped. Returns at once.
  void warn(std::string text);

  // Tells the other ranks which call this rank waits in, and looks whether an awaited rank waits in another one. Over
  // links a call that differs is found when its first message arrives. Where no message ever arrives, since each rank
  // waits for the other (two roots that are not the same), the store finds it. Returns at once; does nothing while an
  // earlier comparison is under way.
  void compare(Call call);
  // What compare() has found about the call with this number. Costs one load where nothing was found.
  std::optional<Error> mismatch(std::uint64_t sequence) const;

  // For a group that fails. In a ring each rank waits for its neighbour, and all but one of them wait for nothing
  // worse. A rank that can do so says in the store where it waits; so the rank that does not is the one to look at.
  void announce_end(const std::string& operation);
  // Adds the ranks that have not announced theirs. Blocks.
  void add_silent(Error& error) const;
  // Adds the ranks of this host that are stopped, to the error of a call that has reached its deadline.
  void add_stopped(Error& error) const;

 private:
  void compare_with_peers(const Call& call);

  const GroupSpec& spec_;
  const Peers& peers_;
  Store* const store_;
  const std::function<void()> mismatch_found_;
  const Duration patience_;

  std::atomic<bool> is_comparing_{false};
  std::uint64_t announced_ = 0;                // the comparing thread's: the call that is in the store
  std::atomic<std::uint64_t> unreachable_{0};  // the call during which the store did not answer: it is not asked again
  std::atomic<bool> has_mismatch_{false};
  mutable Mutex mutex_;
  std::uint64_t mismatched_ TUTTI_GUARDED_BY(mutex_) = 0;  // call
  Error mismatch_ TUTTI_GUARDED_BY(mutex_);

  BackgroundTasks warnings_, comparisons_;  // last: they use the members above until they have ended
};

}  // namespace tutti::comm
