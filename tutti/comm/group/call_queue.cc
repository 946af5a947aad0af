// A blocking call on an idle group costs no allocation, no lock but the driver's flag, and no look at the clock before
// it has spun for a while; its deadline counts from the first look.
#include "tutti/comm/group/call_queue.h"

#include <sched.h>

#include <algorithm>
#include <future>
#include <new>
#include <thread>
#include <utility>

#include "tutti/base/pause.h"
#include "tutti/comm/group/callbacks.h"
#include "tutti/comm/group/flight.h"
#include "tutti/comm/group/paths.h"
#include "tutti/comm/group/progress_thread.h"
#include "tutti/comm/shared_memory/channel.h"
#include "tutti/trace/region.h"

namespace tutti::comm {
namespace {

constexpr Duration kCheckPeriod = std::chrono::microseconds(500);
constexpr Duration kLookAgain = std::chrono::microseconds(50);
constexpr std::size_t kSmallMessage = 64 << 10;  // bytes

bool are_small_messages(std::span<const std::shared_ptr<Submission>> submissions) {
  return std::all_of(submissions.begin(), submissions.end(), [](const auto& submission) {
    const Request& request = submission->request;
    return is_point_to_point(request.kind) && request.device == kHost &&
           request.count * size_of(request.dtype) <= kSmallMessage;
  });
}

// What goes wrong inside an operation without being its result (memory runs out, an invariant of ours is broken) is an
// error of the group too: nothing is thrown through the thread that drives.
template <class Act>
auto guarded(const Act& act) -> decltype(act()) {
  try {
    return act();
  } catch (const Exception& e) {
    return e.error();
  } catch (const std::bad_alloc&) {
    return Error{.code = Code::kLimit, .detail = "no memory is left for the call"};
  } catch (const std::exception& e) {
    return Error{.code = Code::kInternal, .detail = e.what()};
  }
}

Result<comm::Progress> step(comm::Operation& operation) {
  return guarded([&] { return operation.step(); });
}

}  // namespace

SpinPolicy spin_policy(int ranks_on_this_host, int their_cores) {
  SpinPolicy policy;
  if (ranks_on_this_host > their_cores) policy.pauses = 0;
  return policy;
}

// ---- Submission ----

// Either the driver sees the callback, or the callback's caller sees that the call has ended: both write before they
// look, in one order for all.
Status Submission::on_done(std::function<void()> act) {
  if (!done.load(std::memory_order_acquire)) {
    TUTTI_TRY(Callbacks::of_process().start());
    {
      const MutexLock lock(mutex_);
      callbacks_.push_back(std::move(act));
    }
    has_callbacks_.store(true);
    if (!done.load()) return {};
    for (const auto& callback : take_callbacks()) callback();
    return {};
  }
  act();
  return {};
}

std::shared_future<void> Submission::ended() {
  std::shared_future<void> ended;
  {
    const MutexLock lock(mutex_);
    if (!ended_.valid()) ended_ = end_.emplace().get_future().share();
    ended = ended_;
  }
  has_callbacks_.store(true);
  if (done.load()) wake_sleepers();
  return ended;
}

void Submission::set_done() {
  done.store(true);
  done.notify_all();
  if (!has_callbacks_.load()) return;
  wake_sleepers();
  for (auto& callback : take_callbacks()) Callbacks::of_process().run(std::move(callback));
}

void Submission::wake_sleepers() {
  const MutexLock lock(mutex_);
  if (end_) end_->set_value();
  end_.reset();
}

std::vector<std::function<void()>> Submission::take_callbacks() {
  const MutexLock lock(mutex_);
  return std::exchange(callbacks_, {});
}

CallQueue::CallQueue(Owner& owner, Setup setup) : owner_(owner), setup_(std::move(setup)) {}

// ---- Callers ----

// The progress thread holds the lock for a moment after a call that it has ended; another thread may hold it for long.
bool CallQueue::lock_after_tries() {
  constexpr int kTries = 60, kWithoutYield = 50;
  for (int tries = 0; !driver_.try_lock(); ++tries) {
    if (tries == kTries || !is_idle()) return false;
    if (tries < kWithoutYield && setup_.spin.pauses > 0)
      pause_cpu();
    else
      ::sched_yield();
  }
  return true;
}

// Whether to try again at once rather than to give the core away. Where ranks outnumber the cores: only if it is known
// that no awaited rank needs this one. Elsewhere: unless it is known that one does.
bool CallQueue::keeps_core(const comm::Operation& operation, int& tries) const {
  const SpinPolicy& spin = setup_.spin;
  if (spin.pauses == 0) return tries < spin.stays && operation.awaits_this_core() == false;
  if (tries < spin.pauses && tries % comm::kTriesPerCoreCheck == 0 && operation.awaits_this_core() == true)
    tries = spin.pauses;
  return tries < spin.pauses;
}

// Peers that died and deadlines are the progress thread's to notice: no thread waits here for long.
Status CallQueue::run_inline(comm::StartedOperation started, const Request& request, std::uint64_t sequence) {
  comm::Operation& operation = *started.operation;
  std::optional<Deadline> deadline;
  Clock::time_point blocked_since{};
  int tries = 0;
  for (;;) {
    Result<comm::Progress> progress = step(operation);
    if (!progress.ok()) {
      fail(request, sequence, {.error = progress.error()});
      return hand_over(std::move(started), request, sequence, deadline_of(request));
    }
    if (*progress == comm::Progress::kDone) {
      if (trace::FlightRing* const record = flight(request.kind)) record->ended(sequence, true);
      started.owned.reset();  // with the lock: operations share what they are made of
      unlock();
      return {};
    }
    if (*progress == comm::Progress::kMoved) {
      tries = 0;
      blocked_since = {};
      continue;
    }
    if (keeps_core(operation, ++tries)) {
      pause_cpu();
      continue;
    }
    // Sends and receives that were submitted beside this go on. A collective that another thread submitted waits for
    // its turn: it would meet the peers in the middle of this one.
    if (!is_idle()) drive(now(), is_point_to_point(request.kind));
    ::sched_yield();
    if (tries % 8 != 0) continue;
    const auto time = now();
    if (!deadline) deadline = deadline_of(request);
    if (blocked_since == Clock::time_point{}) blocked_since = time;
    if (time - blocked_since > setup_.spin.yields) return hand_over(std::move(started), request, sequence, *deadline);
  }
}

Status CallQueue::run_inline(const Request& request, std::uint64_t sequence) {
  Result<comm::StartedOperation> started = guarded([&] { return setup_.paths->start(request, sequence); });
  if (started.ok()) return run_inline(*std::move(started), request, sequence);
  fail(request, sequence, {.error = started.error()});
  return hand_over({}, request, sequence, deadline_of(request));
}

// A long wait: the progress thread goes on with the operation while this thread sleeps. So it does with a call that has
// failed, and ends when the cause is known. An operation on the stack of this thread stays there until it has ended.
Status CallQueue::hand_over(comm::StartedOperation started, const Request& request, std::uint64_t sequence,
                            Deadline deadline) {
  // Another thread's call may have been handed over, and ended, but its result not yet been read.
  const bool kept = !long_call_in_use_.exchange(true, std::memory_order_acquire);
  const std::shared_ptr<Submission> submission = kept ? long_call_ : std::make_shared<Submission>();
  submission->request = request;
  submission->sequence = sequence;
  submission->operation = started.operation;
  submission->owned = std::move(started.owned);
  submission->deadline = deadline;
  submission->warn_at = deadline.begin() + setup_.hang_warning;
  submission->compare_after = Submission::kCompareAfter;
  submission->done.store(false, std::memory_order_relaxed);
  pending_.fetch_add(1);
  Entries& entries = is_point_to_point(request.kind) ? point_to_point_ : collectives_;
  if (kept)
    entries.splice(entries.begin(), long_call_entry_);
  else
    entries.push_front(submission);
  driver_.unlock();
  wake_progress_thread();
  submission->done.wait(false, std::memory_order_acquire);
  Status result = std::move(submission->result);
  if (kept) long_call_in_use_.store(false, std::memory_order_release);
  return result;
}

CallQueue::Entries::iterator CallQueue::remove(Entries& from, Entries::iterator entry) {
  const auto next = std::next(entry);
  if (*entry == long_call_)
    long_call_entry_.splice(long_call_entry_.begin(), from, entry);
  else
    from.erase(entry);
  return next;
}

std::shared_ptr<Submission> CallQueue::make_submission(const Request& request, CallSite at) const {
  auto submission = std::make_shared<Submission>();
  submission->request = request;
  submission->site = at;
  submission->splits[0].assign(request.in_splits.begin(), request.in_splits.end());
  submission->splits[1].assign(request.out_splits.begin(), request.out_splits.end());
  submission->request.in_splits = submission->splits[0];
  submission->request.out_splits = submission->splits[1];
  submission->deadline = deadline_of(request);
  submission->warn_at = submission->deadline->begin() + setup_.hang_warning;
  return submission;
}

// One lock, and one wake-up of the progress thread, for all of them.
void CallQueue::enqueue(std::span<const std::shared_ptr<Submission>> submissions) {
  if (submissions.empty()) return;
  {
    MutexLock lock(mutex_);
    fresh_.insert(fresh_.end(), submissions.begin(), submissions.end());
    pending_.fetch_add(int(submissions.size()));
  }
  // A small send is gone after one turn, and a small receive there if its message is: the progress thread, whose way
  // back to sleep interrupts all cores, need not be woken for what has ended.
  if (are_small_messages(submissions) && driver_.try_lock()) {
    {
      const DriverUnlocker unlocker(driver_);
      drive(now(), /*collectives_too=*/false);
    }
    if (is_idle()) return;
  }
  wake_progress_thread();
}

// The waiting thread drives the group while no other thread does, for a while; then it leaves that to the progress
// thread. Until then the progress thread may sleep: to wake it after each turn, as unlock() does, would have the two
// take turns on the core. `reached()` is asked with the driver lock held. Whether it was true, or the call has ended.
template <class Reached>
bool CallQueue::drive_until(const Submission& submission, Deadline deadline, const Reached& reached) {
  Clock::time_point still_since{};
  bool is_reached = false;
  waiting_.fetch_add(1);
  for (int tries = 0; !is_reached && !submission.done.load(std::memory_order_acquire);) {
    if (driver_.try_lock()) {
      const DriverUnlocker unlocker(driver_);
      const bool moved = drive(now(), true);
      is_reached = reached();
      if (moved || is_reached) {
        tries = 0;
        still_since = {};
        continue;
      }
    }
    if (++tries < setup_.spin.pauses / 16) {
      pause_cpu();
      continue;
    }
    ::sched_yield();
    if (tries % 8 != 0) continue;
    const auto time = now();
    if (still_since == Clock::time_point{}) still_since = time;
    if (time - still_since > setup_.spin.yields || time > deadline.at()) break;
  }
  waiting_.fetch_sub(1);
  if (!is_idle()) notify_progress_thread();
  return is_reached || submission.done.load(std::memory_order_acquire);
}

Status CallQueue::wait(Submission& submission) {
  if (!drive_until(submission, *submission.deadline, [] { return false; }))
    submission.done.wait(false, std::memory_order_acquire);
  return submission.result;
}

Status CallQueue::wait_on(Submission& submission, void* stream) {
  comm::Hold hold = comm::Hold::kNotYet;
  const auto is_known = [&] {
    if (submission.operation) hold = submission.operation->hold(stream);
    return hold != comm::Hold::kNotYet;
  };
  // The library that puts the operation on a stream has nothing to sleep on.
  while (!drive_until(submission, *submission.deadline, is_known)) std::this_thread::sleep_for(kLookAgain);
  return hold == comm::Hold::kHeld ? Status() : wait(submission);
}

// Atomics have no wait with a limit.
std::optional<Status> CallQueue::wait(Submission& submission, Deadline deadline) {
  if (drive_until(submission, deadline, [] { return false; })) return submission.result;
  if (submission.ended().wait_until(deadline.at()) != std::future_status::ready) return {};
  return submission.result;
}

void CallQueue::wake_progress_thread() {
  if (!setup_.progress_thread) return;
  if (!active_.exchange(true))
    setup_.progress_thread->activate(*this);
  else
    setup_.progress_thread->notify();
}

void CallQueue::notify_progress_thread() {
  if (setup_.progress_thread) setup_.progress_thread->notify();
}

// ---- The owner ----

void CallQueue::stop() {
  State running = State::kRunning;
  state_.compare_exchange_strong(running, State::kStopped);
}

void CallQueue::end_with(Status error) {
  {
    MutexLock lock(mutex_);
    end_ = std::move(error);
  }
  state_.store(State::kEnded);
  notify_progress_thread();
}

void CallQueue::drain(Clock::time_point by) {
  end_by_.store(by.time_since_epoch().count());
  notify_progress_thread();
  for (int left; (left = pending_.load()) > 0;) pending_.wait(left);
}

void CallQueue::close() {
  if (setup_.progress_thread) setup_.progress_thread->forget(*this);
}

void CallQueue::look_again() { look_again_.store(true, std::memory_order_release); }

// ---- The progress thread ----

bool CallQueue::try_drive(Clock::time_point time) {
  if (is_idle() || !driver_.try_lock()) return false;
  const DriverUnlocker unlocker(driver_);
  return drive(time, true);
}

void CallQueue::blockers(comm::Blockers& blockers) {
  if (waiting_.load() > 0 || !driver_.try_lock()) return;
  const DriverUnlocker unlocker(driver_);
  if (!is_running()) return;
  if (!collectives_.empty() && collectives_.front()->operation) collectives_.front()->operation->blockers(blockers);
  for (const auto& submission : point_to_point_) submission->operation->blockers(blockers);
}

// A call that has not started has its deadline too; only calls that have started are warned of. Once the queue is
// stopped nothing is due: end_with() wakes the progress thread.
Duration CallQueue::next_check(Clock::time_point time) {
  Clock::time_point next = time + std::chrono::hours(1);
  if (!driver_.try_lock()) return next - time;
  const DriverUnlocker unlocker(driver_);
  if (!is_running()) return next - time;
  for (const Entries* entries : {&collectives_, &point_to_point_})
    for (const auto& submission : *entries) {
      next = std::min(next, due(*submission));
      if (submission->operation) next = std::min(next, submission->warn_at);
    }
  return std::max(Duration(0), Duration(next - time));
}

bool CallQueue::retire_if_idle() {
  if (!is_idle()) return false;
  active_.store(false);
  if (pending_.load() == 0) return true;
  return active_.exchange(true);  // another thread has activated the queue again: stay if not
}

// ---- Driving ----

bool CallQueue::drive(Clock::time_point time, bool collectives_too) {
  take_arrivals();
  const State state = state_.load(std::memory_order_acquire);
  if (state != State::kRunning) return state == State::kEnded && end_all();
  // One check of the peers serves all operations of this turn: each waits for peers of its own.
  const bool checks = look_again_.exchange(false, std::memory_order_acquire) || time - last_check_ > kCheckPeriod;
  if (checks) last_check_ = time;
  bool moved = false;
  while (collectives_too && is_running() && !collectives_.empty()) {
    const std::shared_ptr<Submission> head = collectives_.front();
    if (!head->operation && !start(*head)) return true;
    moved |= drive_one(*head, time, checks);
    if (head->done.load(std::memory_order_relaxed))
      remove(collectives_, collectives_.begin());
    else if (is_running() && head->operation->lets_next_start())
      point_to_point_.splice(point_to_point_.end(), collectives_, collectives_.begin());
    else
      break;
  }
  if (checks && collectives_too && is_running()) moved |= report_overdue(time);
  for (auto it = point_to_point_.begin(); is_running() && it != point_to_point_.end();) {
    moved |= drive_one(**it, time, checks);
    it = (*it)->done.load(std::memory_order_relaxed) ? remove(point_to_point_, it) : std::next(it);
  }
  return moved;
}

// A call gets its number with the driver lock held, here or on the caller's stack: numbers are the order in which calls
// are carried out, whichever threads they come from. Sends and receives start here, in the order of submission, which
// is the order in which they match; without the mutex, so that threads that submit wait for nothing.
void CallQueue::take_arrivals() {
  {
    MutexLock lock(mutex_);
    arriving_.swap(fresh_);
  }
  for (const auto& submission : arriving_) {
    const Kind kind = submission->request.kind;
    submission->sequence = sequence(kind).fetch_add(1) + 1;
    if (trace::FlightRing* const record = flight(kind))
      record->scheduled(submission->sequence,
                        flight_call(submission->request, submission->site, FlightPath::kNotYetKnown));
  }
  for (auto& submission : arriving_) {
    const bool collective = !is_point_to_point(submission->request.kind);
    if (!collective && !submission->operation && is_running()) (void)start(*submission);
    (collective ? collectives_ : point_to_point_).push_back(std::move(submission));
  }
  arriving_.clear();
}

// Whether it could be started. If not, the queue is stopped.
bool CallQueue::start(Submission& submission) {
  const Request& request = submission.request;
  if (is_tracing()) submission.traced_since = now();
  auto started = guarded([&]() -> Result<comm::StartedOperation> {
    return request.device == kHost
               ? setup_.paths->start(request, submission.sequence)
               : setup_.paths->start_on_device(request, submission.sequence, std::move(submission.ready));
  });
  if (trace::FlightRing* const record = flight(request.kind))
    record->started(submission.sequence, flight_shape(request, setup_.paths->flight_path(request)));
  if (!started.ok()) {
    fail(request, submission.sequence, {.error = started.error()});
    return false;
  }
  submission.operation = started->operation;
  submission.owned = std::move(started->owned);
  return true;
}

void CallQueue::fail(const Request& request, std::uint64_t sequence, Trouble trouble) {
  stop();
  owner_.call_failed(request, sequence, std::move(trouble));
}

// Whether it moved, or the queue was stopped because of it.
bool CallQueue::drive_one(Submission& submission, Clock::time_point time, bool checks) {
  bool moved = false;
  std::optional<Trouble> trouble;
  for (;;) {
    Result<comm::Progress> progress = step(*submission.operation);
    if (!progress.ok()) {
      fail(submission.request, submission.sequence, {.error = progress.error()});
      return true;
    }
    if (*progress == comm::Progress::kDone) {
      finish(submission, {});
      return true;
    }
    if (*progress == comm::Progress::kMoved) {
      moved = true;
      trouble.reset();
    } else if (trouble) {
      fail(submission.request, submission.sequence, *std::move(trouble));
      return true;
    } else if (moved) {
      return true;
    } else if (time >= due(submission)) {
      stop();
      owner_.call_overdue(submission, submission);
      return true;
    } else if (!checks || !(trouble = owner_.check(submission, time))) {
      return false;
    }  // else once more: the peer may have acted before it went
  }
}

// A call behind the head of the queue is not driven, and has its deadline all the same. Whether one has passed.
bool CallQueue::report_overdue(Clock::time_point time) {
  for (const auto& submission : collectives_) {
    if (submission->operation || time < due(*submission)) continue;
    stop();
    owner_.call_overdue(*submission, *collectives_.front());
    return true;
  }
  return false;
}

// Whether any was pending.
bool CallQueue::end_all() {
  Status end;
  bool any = false;
  {
    MutexLock lock(mutex_);
    end = end_;
  }
  for (Entries* entries : {&collectives_, &point_to_point_})
    for (auto it = entries->begin(); it != entries->end(); any = true) {
      finish(**it, end);
      it = remove(*entries, it);
    }
  return any;
}

void CallQueue::finish(Submission& submission, Status result) {
  submission.result = std::move(result);
  const Kind kind = submission.request.kind;
  if (trace::FlightRing* const record = flight(kind)) record->ended(submission.sequence, submission.result.ok());
  if (is_tracing() && submission.traced_since != Clock::time_point{} && !is_point_to_point(kind))
    record_span(setup_.lane, name(kind), to_string(submission.request), submission.traced_since, now());
  submission.owned.reset();
  submission.operation = nullptr;
  // Counted out first: a thread that sees it done and leaves the group at once must not find it pending.
  if (pending_.fetch_sub(1) == 1) pending_.notify_all();
  submission.set_done();
}

Clock::time_point CallQueue::due(const Submission& submission) const {
  const auto end_by = end_by_.load(std::memory_order_acquire);
  const auto deadline = submission.deadline->at();
  return end_by == 0 ? deadline : std::min(deadline, Clock::time_point(Clock::duration(end_by)));
}

}  // namespace tutti::comm
