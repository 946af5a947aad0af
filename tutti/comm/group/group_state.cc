// Numbering, checking, starting, driving and ending operations.
//
// A blocking call on an idle group costs no allocation, no lock but the driver's flag, and no look at the clock before
// it has spun for a while; its deadline counts from the first look.
#include "tutti/comm/group/group_state.h"

#include <sched.h>

#include <algorithm>
#include <new>

#include "tutti/base/log.h"
#include "tutti/base/pause.h"
#include "tutti/base/text.h"
#include "tutti/comm/backends/carried_operation.h"
#include "tutti/comm/group/local_operation.h"
#include "tutti/comm/links/executor.h"
#include "tutti/comm/links/select.h"
#include "tutti/comm/shared_memory/small.h"
#include "tutti/comm/validate.h"
#include "tutti/trace/region.h"

namespace tutti {
namespace {

constexpr Duration kHealthPeriod = std::chrono::microseconds(500);
constexpr std::size_t kSmallExchange = 64 << 10;  // bytes

bool are_small_exchanges(std::span<const std::shared_ptr<Submission>> submissions) {
  return std::all_of(submissions.begin(), submissions.end(), [](const auto& submission) {
    const Request& request = submission->request;
    return is_point_to_point(request.kind) && request.device == kHost &&
           request.count * size_of(request.dtype) <= kSmallExchange;
  });
}

}  // namespace

Status GroupState::validate(const Request& request) const {
  if (is_right_at_a_glance(request, size())) return {};
  const Status status = tutti::validate(request, rank(), size());
  return status.ok() ? status : complete(status.error(), request, sequence_.load());
}

// What goes wrong inside an operation without being its result (memory that runs out, a broken invariant of ours) is an
// error of the group too: nothing is thrown through whoever drives.
template <class Act>
auto GroupState::guarded(const Act& act) -> decltype(act()) {
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

Result<Progress> GroupState::step(Operation& operation) {
  return guarded([&] { return operation.step(); });
}

Result<GroupState::Started> GroupState::start(const Request& request, std::uint64_t sequence) {
  return guarded([&]() -> Result<Started> { return make_operation(request, sequence); });
}

// Whether it could be started; if not, it has ended.
bool GroupState::start(Submission& submission) {
  if (is_tracing()) submission.traced_since = now();
  auto operation = submission.request.device == kHost
                       ? start(submission.request, submission.sequence)
                       : guarded([&]() -> Result<Started> {
                           return Started(TUTTI_TRY(
                               cuda_->start(submission.request, submission.sequence, std::move(submission.ready))));
                         });
  if (FlightRing* const flight = flight_ring(submission.request.kind))
    flight->started(submission.sequence, flight_shape(submission.request, flight_way(submission.request)));
  if (operation.ok()) {
    submission.operation = operation->operation;
    submission.owned = std::move(operation->owned);
    return true;
  }
  finish(submission, fail(trouble_of(complete(operation.error(), submission.request, submission.sequence))));
  return false;
}

Result<GroupState::Started> GroupState::make_operation(const Request& request, std::uint64_t sequence) {
  if (backend_) return Started(TUTTI_TRY(start_carried(*backend_, request, sequence, rank(), size())));
  if (request.kind == Kind::kSend) return Started(point_to_point_->make_send(request, sequence));
  if (request.kind == Kind::kRecv) return Started(point_to_point_->make_recv(request, sequence));
  if (direct_) return Started(std::make_unique<DirectOperation>(*direct_, request, sequence));
  return Started(TUTTI_TRY(planned_->start(request, sequence)));
}

FlightWay GroupState::flight_way(const Request& request) const {
  if (request.device != kHost) return cuda_->is_by_nccl(request) ? FlightWay::kNccl : FlightWay::kStaged;
  if (backend_)
    return engine() == "gloo" ? FlightWay::kGloo : engine() == "mpi" ? FlightWay::kMpi : FlightWay::kNotYetKnown;
  if (is_point_to_point(request.kind)) return FlightWay::kLink;
  return direct_ ? FlightWay::kDirect : way_of(selector_->algorithm(request));
}

Status GroupState::run(const Request& request, CallSite at) {
  if (request.device != kHost) {
    const auto submission = TUTTI_TRY(submit(request, at));
    return wait(*submission);
  }
  if (is_ended()) return turn_away(request, at);
  if (Status status = validate(request); !status.ok()) return status;
  if (size() == 1) {
    run_alone(request);
    return {};
  }
  if (pending_.load(std::memory_order_acquire) == 0 && lock_driver_soon()) {
    if (pending_.load(std::memory_order_acquire) == 0) {
      if (direct_ && !is_point_to_point(request.kind)) {
        FlightRing* const flight = flight_ring(request.kind);
        AtOnce call = call_at_once(*direct_, request, spin_.pauses, flight, sequence_, at);
        if (call.done) {
          unlock_driver();
          return {};
        }
        if (call.word == 0) {
          call.sequence = sequence_.fetch_add(1, std::memory_order_relaxed) + 1;
          if (flight) flight->started(call.sequence, flight_call(request, at, FlightWay::kDirect));
        }
        DirectOperation operation(*direct_, request, call.sequence, call);
        return run_inline(operation, request, call.sequence);
      }
      const std::uint64_t sequence = (is_point_to_point(request.kind) ? p2p_sequence_ : sequence_).fetch_add(1) + 1;
      FlightRing* const flight = flight_ring(request.kind);
      if (flight) flight->started(sequence, flight_call(request, at, flight_way(request)));
      const auto operation = start(request, sequence);
      if (operation.ok()) return run_inline(*operation->operation, request, sequence);
      unlock_driver();
      const Status failed = fail(trouble_of(complete(operation.error(), request, sequence)));
      if (flight) flight->ended(sequence, false);
      return failed;
    }
    unlock_driver();
  }
  const std::shared_ptr<Submission> submission = make_submission(request, at);
  enqueue({&submission, 1});
  return wait(*submission);
}

// The engine still holds it for a moment after a call that it has ended; another thread may hold it for long.
bool GroupState::lock_driver_soon() {
  constexpr int kTries = 60, kWithoutYield = 50;
  for (int tries = 0; !lock_driver(); ++tries) {
    if (tries == kTries || pending_.load(std::memory_order_acquire) != 0) return false;
    if (tries < kWithoutYield && spin_.pauses > 0)
      pause_cpu();
    else
      ::sched_yield();
  }
  return true;
}

void GroupState::unlock_driver() {
  driver_.clear(std::memory_order_release);
  if (pending_.load(std::memory_order_acquire) > 0) process_->engine->notify();
}

// Whether to try again at once rather than to give the core away. Where ranks outnumber the cores: only if it is known
// that no awaited rank needs this one. Elsewhere: unless it is known that one does.
bool GroupState::keeps_core(const Operation& operation, int& tries) const {
  if (spin_.pauses == 0) return tries < spin_.stays && operation.awaits_this_core() == false;
  if (tries < spin_.pauses && tries % kTriesPerCoreCheck == 0 && operation.awaits_this_core() == true)
    tries = spin_.pauses;
  return tries < spin_.pauses;
}

// With the driver lock, which it gives back. Peers that died and deadlines are the engine's to notice: nobody waits
// here for long.
Status GroupState::run_inline(Operation& operation, const Request& request, std::uint64_t sequence) {
  std::optional<Deadline> deadline;
  Clock::time_point blocked_since{};
  int tries = 0;
  for (;;) {
    Result<Progress> progress = step(operation);
    if (!progress.ok()) {
      const Status failed = fail(trouble_of(complete(progress.error(), request, sequence)));
      if (FlightRing* const flight = flight_ring(request.kind)) flight->ended(sequence, false);
      unlock_driver();
      return failed;
    }
    if (*progress == Progress::kDone) {
      if (FlightRing* const flight = flight_ring(request.kind)) flight->ended(sequence, true);
      unlock_driver();
      return {};
    }
    if (*progress == Progress::kMoved) {
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
    if (pending_.load(std::memory_order_acquire) > 0) drive(is_point_to_point(request.kind));
    ::sched_yield();
    if (tries % 8 != 0) continue;
    const auto time = now();
    if (!deadline) deadline = Deadline::after(request.limit.count() ? request.limit : limit_);
    if (blocked_since == Clock::time_point{}) blocked_since = time;
    if (time - blocked_since > spin_.yields) return hand_over(operation, request, sequence, *deadline);
  }
}

// A long wait: the engine goes on with the operation while this thread sleeps. The operation stays on this stack, which
// does not unwind before it has ended.
Status GroupState::hand_over(Operation& operation, const Request& request, std::uint64_t sequence, Deadline deadline) {
  // Another thread's call may have been handed over, and ended, but its result not yet been read.
  const bool kept = !long_call_in_use_.exchange(true, std::memory_order_acquire);
  const std::shared_ptr<Submission> submission = kept ? long_call_ : std::make_shared<Submission>();
  submission->request = request;
  submission->sequence = sequence;
  submission->operation = &operation;
  submission->deadline = deadline;
  submission->warned = false;
  submission->compare_after = kCompareAfter;
  submission->done.store(false, std::memory_order_relaxed);
  pending_.fetch_add(1);
  Entries& queue = is_point_to_point(request.kind) ? exchanges_ : queue_;
  if (kept)
    queue.splice(queue.begin(), long_call_entry_);
  else
    queue.push_front(submission);
  driver_.clear(std::memory_order_release);
  if (!active_.exchange(true))
    process_->engine->activate(shared_from_this());
  else
    process_->engine->notify();
  submission->done.wait(false, std::memory_order_acquire);
  Status result = std::move(submission->result);
  if (kept) long_call_in_use_.store(false, std::memory_order_release);
  return result;
}

GroupState::Entries::iterator GroupState::remove(Entries& from, Entries::iterator entry) {
  const auto next = std::next(entry);
  if (*entry == long_call_)
    long_call_entry_.splice(long_call_entry_.begin(), from, entry);
  else
    from.erase(entry);
  return next;
}

Result<std::shared_ptr<Submission>> GroupState::submit(const Request& request, CallSite at) {
  auto submissions = TUTTI_TRY(submit({&request, 1}, at));
  return std::move(submissions.front());
}

Result<std::vector<std::shared_ptr<Submission>>> GroupState::submit(std::span<const Request> requests, CallSite at) {
  std::vector<std::shared_ptr<Submission>> submissions;
  for (const Request& request : requests) {
    if (is_ended()) return turn_away(request, at);
    TUTTI_TRY(validate(request));
  }
  for (const Request& request : requests) {
    submissions.push_back(make_submission(request, at));
    if (request.device != kHost && size() > 1) TUTTI_TRY(mark(*submissions.back()));
  }
  enqueue(submissions);
  return submissions;
}

std::shared_ptr<Submission> GroupState::make_submission(const Request& request, CallSite at) const {
  auto submission = std::make_shared<Submission>();
  submission->request = request;
  submission->site = at;
  submission->splits[0].assign(request.in_splits.begin(), request.in_splits.end());
  submission->splits[1].assign(request.out_splits.begin(), request.out_splits.end());
  submission->request.in_splits = submission->splits[0];
  submission->request.out_splits = submission->splits[1];
  submission->deadline = Deadline::after(request.limit.count() ? request.limit : limit_);
  return submission;
}

// One lock and one look of the engine for all of them.
void GroupState::enqueue(std::span<const std::shared_ptr<Submission>> submissions) {
  if (submissions.empty()) return;
  if (size() == 1) {
    for (const auto& submission : submissions) {
      if (submission->request.device == kHost)
        run_alone(submission->request);
      else
        run_alone_on_device(*submission);
      submission->done.store(true);
    }
    return;
  }
  {
    MutexLock lock(queue_mutex_);
    for (const auto& submission : submissions) {
      submission->sequence = (is_point_to_point(submission->request.kind) ? p2p_sequence_ : sequence_).fetch_add(1) + 1;
      if (FlightRing* const flight = flight_ring(submission->request.kind))
        flight->scheduled(submission->sequence,
                          flight_call(submission->request, submission->site, FlightWay::kNotYetKnown));
      fresh_.push_back(submission);
      pending_.fetch_add(1);
    }
  }
  // A small send is gone after one look, and a small receive there if its message is: the engine, whose way back to
  // sleep interrupts all cores, need not be woken for what has ended.
  if (are_small_exchanges(submissions) && lock_driver()) {
    drive(/*collectives_too=*/false);
    driver_.clear(std::memory_order_release);
    if (pending_.load(std::memory_order_acquire) == 0) return;
  }
  if (!active_.exchange(true))
    process_->engine->activate(shared_from_this());
  else
    process_->engine->notify();
}

// The waiting thread drives the group while nobody else does, for a while; then it leaves that to the engine. Until
// then the engine may sleep: to wake it after each look, as unlock_driver() does, would have the two take turns on the
// core.
Status GroupState::wait(Submission& submission) {
  Clock::time_point still_since{};
  waiting_.fetch_add(1);
  for (int tries = 0; !submission.done.load(std::memory_order_acquire);) {
    if (lock_driver()) {
      const bool moved = drive();
      driver_.clear(std::memory_order_release);
      if (moved) {
        tries = 0;
        still_since = {};
        continue;
      }
    }
    if (++tries < spin_.pauses / 16) {
      pause_cpu();
      continue;
    }
    ::sched_yield();
    if (tries % 8 != 0) continue;
    const auto time = now();
    if (still_since == Clock::time_point{}) still_since = time;
    if (time - still_since > spin_.yields) break;
  }
  waiting_.fetch_sub(1);
  if (pending_.load(std::memory_order_acquire) > 0) process_->engine->notify();
  submission.done.wait(false, std::memory_order_acquire);
  return submission.result;
}

bool GroupState::try_drive() {
  if (pending_.load(std::memory_order_acquire) == 0 || !lock_driver()) return false;
  const bool moved = drive();
  driver_.clear(std::memory_order_release);
  return moved;
}

bool GroupState::drive(bool collectives_too) {
  {
    MutexLock lock(queue_mutex_);
    arriving_.swap(fresh_);
  }
  // Started without the mutex: a send that cannot start fails the group, which takes seconds where the store is slow.
  for (auto& submission : arriving_) {
    // Sends and receives exist from here on in the order of submission, which is the order in which they match.
    if (!is_point_to_point(submission->request.kind))
      queue_.push_back(std::move(submission));
    else if (start(*submission))
      exchanges_.push_back(std::move(submission));
  }
  arriving_.clear();
  // One look at the peers serves all operations of this turn: each waits for peers of its own.
  const auto time = now();
  const bool look = unwell_.exchange(false, std::memory_order_acquire) || time - last_health_ > kHealthPeriod;
  if (look) last_health_ = time;
  bool moved = false;
  while (!queue_.empty() && collectives_too) {
    const std::shared_ptr<Submission> head = queue_.front();
    if (!head->operation && !start(*head)) {
      remove(queue_, queue_.begin());
      moved = true;
      continue;
    }
    const bool head_moved = drive_one(*head, time, look);
    moved |= head_moved;
    if (!head->done.load(std::memory_order_relaxed)) {
      if (!head->operation->lets_next_start()) break;
      exchanges_.splice(exchanges_.end(), queue_, queue_.begin());
      continue;
    }
    remove(queue_, queue_.begin());
  }
  if (look && collectives_too) moved |= end_overdue(time);
  for (auto it = exchanges_.begin(); it != exchanges_.end();) {
    moved |= drive_one(**it, time, look);
    it = (*it)->done.load(std::memory_order_relaxed) ? remove(exchanges_, it) : std::next(it);
  }
  return moved;
}

// A call that waits behind the head of the queue is not driven, and has its deadline all the same. Its end is the end
// of the group, so the first one that is overdue is enough; the next turn ends the rest. Whether there was one.
bool GroupState::end_overdue(Clock::time_point time) {
  for (auto it = queue_.begin(); it != queue_.end(); ++it) {
    Submission& submission = **it;
    if (submission.operation || time < due(submission)) continue;
    finish(submission,
           fail({complete(overdue(submission), submission.request, submission.sequence), Process::Evidence::kCause}));
    remove(queue_, it);
    return true;
  }
  return false;
}

bool GroupState::drive_one(Submission& submission, Clock::time_point time, bool look_at_peers) {
  if (poisoned_.load(std::memory_order_relaxed)) {
    finish(submission, status());
    return true;
  }
  bool moved = false;
  for (;;) {
    Result<Progress> progress = step(*submission.operation);
    if (!progress.ok()) {
      finish(submission, fail(trouble_of(complete(progress.error(), submission.request, submission.sequence))));
      return true;
    }
    if (*progress == Progress::kDone) {
      finish(submission, {});
      return true;
    }
    if (*progress == Progress::kBlocked) break;
    moved = true;
  }
  if (moved) return true;
  if (time >= due(submission)) {
    finish(submission,
           fail({complete(overdue(submission), submission.request, submission.sequence), Process::Evidence::kCause}));
    return true;
  }
  if (look_at_peers) {
    if (auto trouble = health(*submission.operation)) {
      const Result<Progress> progress = step(*submission.operation);  // it may have acted before it went
      if (progress.ok() && *progress != Progress::kBlocked) {
        if (*progress == Progress::kDone) finish(submission, {});
        return true;
      }
      if (!progress.ok()) trouble = trouble_of(progress.error());
      finish(submission, fail({complete(trouble->error, submission.request, submission.sequence), trouble->evidence}));
      return true;
    }
    if (auto different = compare_calls(submission)) {
      finish(submission, fail({complete(*std::move(different), submission.request, submission.sequence),
                               Process::Evidence::kCause}));
      return true;
    }
    if (!submission.warned && submission.deadline->waited() > to_seconds(process_->hang_warning))
      warn_of_hang(submission);
  }
  return false;
}

void GroupState::finish(Submission& submission, Status result) {
  submission.result = std::move(result);
  if (FlightRing* const flight = flight_ring(submission.request.kind))
    flight->ended(submission.sequence, submission.result.ok());
  if (is_tracing() && submission.traced_since != Clock::time_point{} && !is_point_to_point(submission.request.kind))
    record_span("group " + spec_.name, name(submission.request.kind), to_string(submission.request),
                submission.traced_since, now());
  submission.owned.reset();
  submission.operation = nullptr;
  // Counted out first: who sees it done and leaves the group at once must not find it pending.
  if (pending_.fetch_sub(1) == 1) pending_.notify_all();
  submission.done.store(true, std::memory_order_release);
  submission.done.notify_all();
}

Clock::time_point GroupState::due(const Submission& submission) const {
  const auto leave_by = leave_by_.load(std::memory_order_acquire);
  const auto deadline = submission.deadline->at();
  return leave_by == 0 ? deadline : std::min(deadline, Clock::time_point(Clock::duration(leave_by)));
}

void GroupState::blockers(Blockers& blockers) {
  if (waiting_.load() > 0 || !lock_driver()) return;
  if (!queue_.empty() && queue_.front()->operation) queue_.front()->operation->blockers(blockers);
  for (const auto& submission : exchanges_) submission->operation->blockers(blockers);
  driver_.clear(std::memory_order_release);
}

bool GroupState::retire_if_idle() {
  if (pending_.load(std::memory_order_acquire) != 0) return false;
  active_.store(false);
  if (pending_.load() == 0) return true;
  return active_.exchange(true);  // somebody has activated us again: stay if they did not
}

Duration GroupState::earliest_check(const std::vector<std::shared_ptr<GroupState>>& groups) {
  Duration least = std::chrono::hours(1);
  for (const auto& group : groups) {
    if (!group->lock_driver()) continue;
    const auto look = [&](const Submission& submission) {
      Clock::time_point next = group->due(submission);
      const double waited = submission.deadline->waited(), warning = to_seconds(group->process_->hang_warning);
      // drive() warns of the calls that have started, not of those behind them.
      if (submission.operation && !submission.warned)
        next = std::min(next, now() + from_seconds(std::max(0.0, warning - waited)));
      least = std::min(least, std::max(Duration(0), Duration(next - now())));
    };
    for (const auto& submission : group->queue_) look(*submission);
    for (const auto& submission : group->exchanges_) look(*submission);
    group->driver_.clear(std::memory_order_release);
  }
  return least;
}

}  // namespace tutti
