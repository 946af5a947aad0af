#pragma once
// How a group ends. The first error wins; every call, and every other rank, gets it with the root cause of the job.
//
// Ending takes two steps. begin() is cheap, so whoever drives the group may call it: from then on no call goes on, on
// any rank of this host. conclude() finds out what the error leaves open, writes the flight record, asks the store for
// the root cause and tells the store ours, which takes up to 12 s where the store is slow. It never runs under the
// driver lock, nor on the progress thread: other groups go on meanwhile.
//
// Threads: any.
#include <atomic>
#include <functional>
#include <future>
#include <optional>

#include "tutti/base/thread.h"
#include "tutti/comm/group/diagnosis.h"
#include "tutti/comm/group/peers.h"

namespace tutti::comm {

class Failure {
 public:
  // What the group does with its calls.
  struct Hooks {
    std::function<void()> stop;              // begin() calls it: no operation may be stepped any more
    std::function<void(const Status&)> end;  // conclude() calls it: every call ends with this error
  };
  // A process whose spare thread is kept: fail_in_background() may need it.
  Failure(Process& process, const GroupSpec& spec, const Peers& peers, Diagnosis& diagnosis, Hooks hooks);
  ~Failure();

  // Where the members on this host see that one of them has ended the group: 0, or 1 + its rank. Before the first call.
  void set_poison_word(std::atomic<std::uint32_t>* word) { poison_word_ = word; }

  // Whether calls are turned away: the group has failed here or on a rank of this host, or the job has.
  bool is_ended() const {
    return phase_.load(std::memory_order_acquire) != Phase::kWell || process_.has_fault() ||
           (poison_word_ && poison_word_->load(std::memory_order_acquire) != 0);
  }
  bool has_begun() const { return phase_.load(std::memory_order_acquire) != Phase::kWell; }
  // What ended the group, if that did not happen in one of this rank's calls.
  std::optional<Trouble> ended_elsewhere() const;

  // The error that ended the group, or ok. While the root cause is being found out, waits for it.
  Status status() const;
  // Ends the group because of `trouble`, unless it has ended; then status(). Blocks.
  Status fail(Trouble trouble);
  // Like fail(), but returns at once: a background thread concludes, or the spare thread of the process.
  void fail_in_background(Trouble trouble);

 private:
  enum class Phase : std::uint32_t { kWell, kEnding, kEnded };
  bool begin(Trouble trouble);  // whether this is the first error; then conclude() has to follow
  void conclude();

  Process& process_;
  const GroupSpec& spec_;
  const Peers& peers_;
  Diagnosis& diagnosis_;
  const Hooks hooks_;
  std::atomic<std::uint32_t>* poison_word_ = nullptr;
  std::atomic<Phase> phase_{Phase::kWell};
  mutable Mutex mutex_;
  Trouble trouble_ TUTTI_GUARDED_BY(mutex_);
  Status status_ TUTTI_GUARDED_BY(mutex_);  // once kEnded
  std::future<void> spared_;                // where the spare thread concludes: that it has ended
  BackgroundTasks concluding_;              // last: uses the members above until it has ended
};

}  // namespace tutti::comm
