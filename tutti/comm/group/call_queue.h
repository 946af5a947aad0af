#pragma once
// The calls of a group on one rank: which are queued, in which order they are carried out, and who drives them.
//
// Collectives are carried out one after another, in the order of submission; sends and receives proceed beside them.
// Whoever holds the driver lock steps the operations: a thread that waits for one (run_inline(), wait()), else the
// progress thread. Driving never blocks. A call that finds the queue empty is carried out on the caller's stack without
// a queue entry; if that takes long, the call is handed to the progress thread.
//
// How a group fails is its owner's business: the queue stops, reports what went wrong, and the owner ends every pending
// call once it knows the cause. Until then calls may be queued, and none is stepped.
//
// Time is an argument of try_drive() and next_check(), so both can be tested without a clock. Threads: any, except
// where a function says otherwise.
#include <atomic>
#include <cstdint>
#include <functional>
#include <future>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/call_site.h"
#include "tutti/base/deadline.h"
#include "tutti/base/mutex.h"
#include "tutti/comm/cuda/runtime.h"
#include "tutti/comm/operation.h"
#include "tutti/comm/request.h"
#include "tutti/trace/flight/ring.h"

namespace tutti::comm {

class Paths;
class ProgressThread;
struct Trouble;

// Held by whoever steps the operations of a group. Nobody waits for it: a thread that does not get it leaves the work
// to the holder.
class TUTTI_CAPABILITY("driver lock") DriverLock {
 public:
  bool try_lock() TUTTI_TRY_ACQUIRE(true) { return !held_.test_and_set(std::memory_order_acquire); }
  void unlock() TUTTI_RELEASE() { held_.clear(std::memory_order_release); }

 private:
  std::atomic_flag held_;
};

// Gives back a DriverLock that try_lock() has taken.
class TUTTI_SCOPED_CAPABILITY DriverUnlocker {
 public:
  explicit DriverUnlocker(DriverLock& taken) TUTTI_REQUIRES(taken) : taken_(taken) {}
  ~DriverUnlocker() TUTTI_RELEASE() { taken_.unlock(); }
  DriverUnlocker(const DriverUnlocker&) = delete;

 private:
  DriverLock& taken_;
};

// How long to try before giving the processor away, and before sleeping.
struct SpinPolicy {
  int pauses = 2000;  // tries with a pause instruction; 0 if ranks outnumber the cores
  int stays = 200;    // likewise, even then, where no awaited rank needs this core
  Duration yields =
      std::chrono::milliseconds(1);  // then sched_yield for this long; then the progress thread takes over
};
SpinPolicy spin_policy(int ranks_on_this_host, int their_cores);

// One call that was queued. Any thread may read `done`; the rest belongs to the driver until then.
class Submission {
 public:
  // How long a collective waits before its rank compares it with the calls of the others; then twice as long, and so
  // on.
  static constexpr Duration kCompareAfter = std::chrono::seconds(1);

  Request request;
  CallSite site;               // of the call
  std::uint64_t sequence = 0;  // 0: no driver has seen it
  comm::Operation* operation =
      nullptr;  // null: not started. Owned, the group's own, or on the stack of the call that waits
  std::unique_ptr<comm::Operation> owned;
  cuda::Event ready;                       // of a call on a GPU: where the caller's stream stood
  std::optional<Deadline> deadline;        // from submission
  Clock::time_point warn_at{};             // the owner logs a warning then; max(): it has
  Duration compare_after = kCompareAfter;  // of waiting
  Clock::time_point traced_since{};        // its turn, if a trace was under way
  std::vector<std::size_t> splits[2];      // own copies: the caller's spans need not outlive submit()
  Status result;                           // valid once done
  std::atomic<bool> done{false};

  // Any thread: as Work::on_done().
  Status on_done(std::function<void()> act) TUTTI_EXCLUDES(mutex_);
  // Any thread: ready once the call has ended.
  std::shared_future<void> ended() TUTTI_EXCLUDES(mutex_);
  // The driver: the result is there.
  void set_done() TUTTI_EXCLUDES(mutex_);

 private:
  std::vector<std::function<void()>> take_callbacks() TUTTI_EXCLUDES(mutex_);
  void wake_sleepers() TUTTI_EXCLUDES(mutex_);

  std::atomic<bool> has_callbacks_{false};  // or sleepers
  Mutex mutex_;
  std::optional<std::promise<void>> end_ TUTTI_GUARDED_BY(mutex_);  // of ended_; none: nobody asked, or it has ended
  std::shared_future<void> ended_ TUTTI_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> callbacks_ TUTTI_GUARDED_BY(mutex_);
};

class CallQueue {
  DriverLock driver_;  // first, since annotations of functions name it

 public:
  // The driver calls, with the driver lock held. No function may block.
  class Owner {
   public:
    // The call cannot go on, and the group has to end. The queue has stopped; the owner calls end_with() in the end,
    // from any thread.
    virtual void call_failed(const Request& request, std::uint64_t sequence, Trouble trouble) = 0;
    // Likewise: the deadline of `call` has passed. It waits for the ranks that `blocked` waits for, which is `call`
    // itself or the one at the head of the queue.
    virtual void call_overdue(const Submission& call, const Submission& blocked) = 0;
    // Asked every 500 us, and after look_again(), about a call that has started and is blocked: whether it cannot end
    // well.
    virtual std::optional<Trouble> check(Submission& call, Clock::time_point time) = 0;

   protected:
    ~Owner() = default;
  };

  struct Setup {
    std::string lane;         // of traces
    Duration limit{};         // of a call that does not bring its own
    Duration hang_warning{};  // when to warn
    SpinPolicy spin;
    trace::FlightRing* flight[2] = {};  // where collectives, and sends and receives, are recorded; null: nowhere
    Paths* paths = nullptr;             // start calls; null: each call comes with its operation
    ProgressThread* progress_thread = nullptr;  // null: other threads drive
  };

  CallQueue(Owner& owner, Setup setup);
  CallQueue(const CallQueue&) = delete;

  // ---- Callers ----
  bool is_idle() const { return pending_.load(std::memory_order_acquire) == 0; }
  // The last number of collectives, or of sends and receives. The next one is taken with the driver lock held.
  std::atomic<std::uint64_t>& sequence(Kind kind) { return sequences_[is_point_to_point(kind)]; }
  std::uint64_t last_sequence(Kind kind) const { return sequences_[is_point_to_point(kind)].load(); }
  trace::FlightRing* flight(Kind kind) const { return setup_.flight[is_point_to_point(kind)]; }
  const SpinPolicy& spin() const { return setup_.spin; }

  // For a call on the caller's stack. The holder may still be at the end of the last call: tries for a moment.
  bool lock_soon() TUTTI_TRY_ACQUIRE(true, driver_) { return driver_.try_lock() || lock_after_tries(); }
  void unlock() TUTTI_RELEASE(driver_) {
    driver_.unlock();
    if (!is_idle()) notify_progress_thread();
  }
  DriverLock& driver() TUTTI_RETURNS_CAPABILITY(driver_) { return driver_; }
  // Carry out a call on the calling thread: one whose operation has started, or one that the paths start. An operation
  // that is not owned has to stay until they return.
  Status run_inline(comm::StartedOperation started, const Request& request, std::uint64_t sequence)
      TUTTI_RELEASE(driver_);
  Status run_inline(const Request& request, std::uint64_t sequence) TUTTI_RELEASE(driver_);

  std::shared_ptr<Submission> make_submission(const Request& request, CallSite at) const;
  // Queues them in their order; they get their numbers when a thread drives. With its own operation, a submission
  // counts as started.
  void enqueue(std::span<const std::shared_ptr<Submission>> submissions);
  Status wait(Submission& submission);
  // wait(), but not beyond the deadline: none if the call has not ended by then.
  std::optional<Status> wait(Submission& submission, Deadline deadline);
  // wait() for work that is put on `stream` after it: as Work::wait_on().
  Status wait_on(Submission& submission, void* stream);

  // ---- The owner ----
  // No operation is stepped or started any more.
  void stop();
  // After stop(): every call that is pending, or comes later, ends with this error.
  void end_with(Status error);
  // Waits until nothing is pending. What is pending at the time given is reported as overdue.
  void drain(Clock::time_point by);
  // Nothing is pending, and no more calls come: when this returns, the progress thread has let go of the queue.
  void close();
  // Asks Owner::check() at the next turn: something has become of a peer, or of a question to the store.
  void look_again();

  // ---- The progress thread ----
  bool try_drive(Clock::time_point time);  // false if nothing moved or another thread drives
  // What the calls wait for; nothing while other threads drive, who will notify() when they stop.
  void blockers(comm::Blockers& blockers);
  // How long the queue need not be looked at, as far as deadlines and warnings go.
  Duration next_check(Clock::time_point time);
  bool retire_if_idle();

 private:
  using Entries = std::list<std::shared_ptr<Submission>>;
  enum class State : std::uint32_t { kRunning, kStopped, kEnded };

  bool lock_after_tries() TUTTI_TRY_ACQUIRE(true, driver_);
  template <class Reached>
  bool drive_until(const Submission& submission, Deadline deadline, const Reached& reached);
  bool is_running() const { return state_.load(std::memory_order_acquire) == State::kRunning; }
  bool drive(Clock::time_point time, bool collectives_too) TUTTI_REQUIRES(driver_) TUTTI_EXCLUDES(mutex_);
  void take_arrivals() TUTTI_REQUIRES(driver_) TUTTI_EXCLUDES(mutex_);
  bool start(Submission& submission) TUTTI_REQUIRES(driver_) TUTTI_EXCLUDES(mutex_);
  bool drive_one(Submission& submission, Clock::time_point time, bool checks) TUTTI_REQUIRES(driver_)
      TUTTI_EXCLUDES(mutex_);
  bool report_overdue(Clock::time_point time) TUTTI_REQUIRES(driver_);
  bool end_all() TUTTI_REQUIRES(driver_) TUTTI_EXCLUDES(mutex_);
  void finish(Submission& submission, Status result) TUTTI_REQUIRES(driver_) TUTTI_EXCLUDES(mutex_);
  Entries::iterator remove(Entries& from, Entries::iterator entry) TUTTI_REQUIRES(driver_);
  Status hand_over(comm::StartedOperation started, const Request& request, std::uint64_t sequence, Deadline deadline)
      TUTTI_RELEASE(driver_);
  void fail(const Request& request, std::uint64_t sequence, Trouble trouble) TUTTI_REQUIRES(driver_)
      TUTTI_EXCLUDES(mutex_);
  bool keeps_core(const comm::Operation& operation, int& tries) const;
  Clock::time_point due(const Submission& submission) const;
  Deadline deadline_of(const Request& request) const {
    return Deadline::after(request.limit.count() ? request.limit : setup_.limit);
  }
  void wake_progress_thread();    // something was queued
  void notify_progress_thread();  // something that is queued may move

  Owner& owner_;
  const Setup setup_;

  std::atomic<State> state_{State::kRunning};
  std::atomic<int> pending_{0};      // queued, not finished
  std::atomic<int> waiting_{0};      // threads in wait() that drive
  std::atomic<bool> active_{false};  // known to the progress thread
  std::atomic<bool> look_again_{false};
  std::atomic<Clock::time_point::rep> end_by_{0};  // not 0: what is pending is overdue then
  std::atomic<std::uint64_t> sequences_[2]{};      // collectives, sends and receives

  Mutex mutex_;
  std::vector<std::shared_ptr<Submission>> fresh_ TUTTI_GUARDED_BY(mutex_);
  Status end_ TUTTI_GUARDED_BY(mutex_);  // once kEnded

  // The driver's. `arriving_` is swapped with `fresh_`, so that both keep their memory.
  std::vector<std::shared_ptr<Submission>> arriving_ TUTTI_GUARDED_BY(driver_);
  Entries collectives_ TUTTI_GUARDED_BY(driver_);     // in order; only the first has started
  Entries point_to_point_ TUTTI_GUARDED_BY(driver_);  // and collectives that let the next one start beside them
  Clock::time_point last_check_ TUTTI_GUARDED_BY(driver_){};
  // What hand_over() queues, kept with its entry, so that a call that waits for long allocates nothing. The Submission
  // is in use until the caller has read its result, the entry as long as it is queued.
  const std::shared_ptr<Submission> long_call_ = std::make_shared<Submission>();
  std::atomic<bool> long_call_in_use_{false};
  Entries long_call_entry_ TUTTI_GUARDED_BY(driver_){long_call_};
};

}  // namespace tutti::comm
