// Checks calls, chooses between the inline path and the queue, and turns what the queue reports into errors.
#include "tutti/comm/group/group_state.h"

#include "tutti/base/text.h"
#include "tutti/comm/layout.h"
#include "tutti/comm/links/call_header.h"
#include "tutti/comm/shared_memory/small.h"
#include "tutti/comm/validate.h"

namespace tutti::comm {
namespace {

std::shared_ptr<trace::FlightTrack> record(const Process& process, const GroupSpec& spec) {
  if (!process.flight || spec.size() == 1) return nullptr;
  return process.flight->add({.id = spec.id, .name = spec.name, .rank = spec.rank, .global_ranks = spec.global_ranks});
}

}  // namespace

GroupState::GroupState(std::shared_ptr<Process> process, Spec spec)
    : process_(std::move(process)),
      spec_(std::move(spec)),
      limit_(spec_.limit.count() > 0 ? spec_.limit : process_->collective_timeout),
      flight_(record(*process_, spec_)),
      peers_(*process_, spec_),
      paths_(*process_, spec_, peers_, limit_),
      queue_(*this, queue_setup()),
      diagnosis_(spec_, peers_, process_->store.get(),
                 [this] {
                   queue_.look_again();
                   process_->progress_thread->notify();
                 }),
      failure_(*process_, spec_, peers_, diagnosis_,
               {.stop = [this] { queue_.stop(); },
                .end =
                    [this](const Status& error) {
                      paths_.abort();
                      queue_.end_with(error);
                    }}),
      barrier_(*process_, spec_, peers_) {
  // So that not even the first check of the peers allocates.
  blockers_.ranks.reserve(spec_.global_ranks.size());
  blockers_.fds.reserve(spec_.global_ranks.size());
}

CallQueue::Setup GroupState::queue_setup() {
  return {.lane = "group " + spec_.name,
          .limit = limit_,
          .hang_warning = process_->hang_warning,
          .spin = spin_policy(process_->ranks_on_machine, process_->cores_of_ranks),
          .flight = {flight_ ? &flight_->collectives : nullptr, flight_ ? &flight_->exchanges : nullptr},
          .paths = &paths_,
          .progress_thread = process_->progress_thread.get()};
}

Result<std::shared_ptr<GroupState>> GroupState::create(std::shared_ptr<Process> process, Spec spec,
                                                       const Paths::GatherTexts& gather, Deadline deadline) {
  if (Status status = spec.size() > 1 ? process->spare_thread.keep_thread() : Status(); !status.ok()) {
    Error error = status.error();
    error.group = spec.name;
    error.rank = spec.rank;
    return error;
  }
  auto group = std::shared_ptr<GroupState>(new GroupState(std::move(process), std::move(spec)));
  TUTTI_TRY(group->paths_.open(gather, deadline));
  group->failure_.set_poison_word(group->paths_.poison_word());
  return group;
}

// ---- Calls ----

Status GroupState::validate(const Request& request) const {
  if (comm::is_right_at_a_glance(request, size())) return {};
  const Status status = comm::validate(request, rank(), size());
  return status.ok() ? status : complete(status.error(), request, queue_.last_sequence(Kind::kBarrier));
}

Status GroupState::run(const Request& request, CallSite at) {
  if (request.device != kHost) {
    const auto submission = TUTTI_TRY(submit(request, at));
    return wait(*submission);
  }
  if (failure_.is_ended()) return turn_away(request, at);
  if (Status status = validate(request); !status.ok()) return status;
  if (size() == 1) {
    run_alone(request);
    return {};
  }
  if (queue_.is_idle() && queue_.lock_soon()) {
    if (queue_.is_idle()) return run_inline(request, at);
    queue_.unlock();
  }
  const std::shared_ptr<Submission> submission = queue_.make_submission(request, at);
  queue_.enqueue({&submission, 1});
  return wait(*submission);
}

// On an idle queue, by the thread that calls.
Status GroupState::run_inline(const Request& request, CallSite at) {
  std::atomic<std::uint64_t>& last = queue_.sequence(request.kind);
  trace::FlightRing* const flight = queue_.flight(request.kind);
  if (comm::DirectChannel* const direct = paths_.direct(); direct && !is_point_to_point(request.kind)) {
    comm::InlineCall call = comm::try_inline(*direct, request, queue_.spin().pauses, flight, last, at);
    if (call.done) {
      queue_.unlock();
      return {};
    }
    if (call.word == 0) {
      call.sequence = last.fetch_add(1, std::memory_order_relaxed) + 1;
      if (flight) flight->started(call.sequence, flight_call(request, at, FlightPath::kDirect));
    }
    comm::DirectOperation operation(*direct, request, call.sequence, call);
    return queue_.run_inline(comm::StartedOperation(&operation), request, call.sequence);
  }
  const std::uint64_t sequence = last.fetch_add(1) + 1;
  if (flight) flight->started(sequence, flight_call(request, at, paths_.flight_path(request)));
  return queue_.run_inline(request, sequence);
}

Result<std::shared_ptr<Submission>> GroupState::submit(const Request& request, CallSite at) {
  auto submissions = TUTTI_TRY(submit({&request, 1}, at));
  return std::move(submissions.front());
}

Result<std::vector<std::shared_ptr<Submission>>> GroupState::submit(std::span<const Request> requests, CallSite at) {
  std::vector<std::shared_ptr<Submission>> submissions;
  for (const Request& request : requests) {
    if (failure_.is_ended()) return turn_away(request, at);
    TUTTI_TRY(validate(request));
  }
  for (const Request& request : requests) {
    submissions.push_back(queue_.make_submission(request, at));
    if (request.device == kHost || size() == 1) continue;
    auto ready = paths_.mark(submissions.back()->request);
    if (!ready.ok()) return complete(ready.error(), request, queue_.last_sequence(Kind::kBarrier));
    submissions.back()->ready = *std::move(ready);
  }
  if (size() > 1) {
    queue_.enqueue(submissions);
    return submissions;
  }
  for (const auto& submission : submissions) {
    if (submission->request.device == kHost)
      run_alone(submission->request);
    else
      run_alone_on_device(*submission);
    submission->set_done();
  }
  return submissions;
}

void GroupState::run_alone_on_device(Submission& submission) {
  const Status status = paths_.run_alone_on_device(submission.request);
  if (!status.ok())
    submission.result = complete(status.error(), submission.request, queue_.last_sequence(Kind::kBarrier));
}

// ---- What the queue reports ----

void GroupState::call_failed(const Request& request, std::uint64_t sequence, Trouble trouble) {
  trouble.error = complete(std::move(trouble.error), request, sequence);
  failure_.fail_in_background(std::move(trouble));
}

// A call that has not started waits for whatever the head of the queue waits for.
void GroupState::call_overdue(const Submission& call, const Submission& blocked) {
  comm::Blockers blockers;
  blocked.operation->blockers(blockers);
  std::string detail = "still waiting for ";
  if (&blocked != &call)
    detail += "its turn behind " + call_text(blocked.request, blocked.sequence) + ", which waits for ";
  detail += blockers.in_turn ? "earlier calls of the group on the GPU" : awaited_text(blocked.request, blockers);
  Error error = call.deadline->error(detail, limit_text(call.request));
  error.ranks = blockers.ranks;
  if (!call.deadline->expired()) {
    error.limit = -1;
    error.hint = "this rank left the group while the call was in progress: wait() for every Work first";
  }
  call_failed(call.request, call.sequence,
              {.error = std::move(error), .evidence = Process::Evidence::kCause, .is_overdue = true});
}

std::optional<Trouble> GroupState::check(Submission& call, Clock::time_point time) {
  if (auto trouble = failure_.ended_elsewhere()) return trouble;
  blockers_.clear();
  call.operation->blockers(blockers_);
  if (blockers_.in_turn) {
    if (time >= call.warn_at) call.warn_at = time + Submission::kCompareAfter;  // its turn may have come by then
    return {};
  }
  if (process_->host)
    for (const int r : blockers_.ranks)
      if (auto departure = peers_.departure_of(r)) {
        if (blockers_.carried && departure->evidence == Process::Evidence::kCause) continue;  // it left in order
        paths_.mark_peer_gone(r);
        return departure;
      }
  if (!is_point_to_point(call.request.kind)) {
    if (auto mismatch = diagnosis_.mismatch(call.sequence))
      return Trouble{*std::move(mismatch), Process::Evidence::kCause};
    if (paths_.may_hide_mismatch() && time - call.deadline->begin() >= call.compare_after)
      compare(call, blockers_.ranks);
  }
  if (time >= call.warn_at) warn(call, blockers_);
  return {};
}

void GroupState::compare(Submission& call, const std::vector<int>& awaited) {
  const Request& r = call.request;
  call.compare_after *= 2;
  const std::string count =
      r.kind == Kind::kBarrier || comm::has_splits(r) ? std::string("-") : std::to_string(r.count);
  diagnosis_.compare({.sequence = call.sequence,
                      .signature = detail::words(
                          std::to_string(call.sequence), " ", name(r.kind), " ", name(r.dtype), " ",
                          is_reduction(r.kind) ? name(r.op) : "-", " ", has_root(r.kind) ? r.root : 0, " ", count,
                          r.device == kHost ? "" : " ", r.device == kHost ? "" : paths_.device_engine(r)),
                      .text = call_text(r, call.sequence),
                      .awaited = awaited});
}

void GroupState::warn(Submission& call, const comm::Blockers& blockers) {
  call.warn_at = Clock::time_point::max();
  diagnosis_.warn(call_text(call.request, call.sequence) + " on group " + spec_.name + ", rank " +
                  std::to_string(rank()) + ", has waited " + seconds_text(call.deadline->waited()) + " of " +
                  seconds_text(call.deadline->limit()) + " for " + awaited_text(call.request, blockers));
}

Error GroupState::complete(Error error, const Request& request, std::uint64_t sequence) const {
  if (error.group.empty()) error.group = spec_.name;
  if (error.rank < 0) error.rank = rank();
  if (error.operation.empty()) error.operation = call_text(request, sequence);
  return error;
}

const char* GroupState::limit_text(const Request& request) const {
  if (request.limit.count() != 0) return "the call set this limit";
  if (spec_.limit.count() != 0) return "the group was made with this timeout";
  return "TUTTI_TIMEOUT sets the limit";
}

// ---- The end ----

Status GroupState::why_ended(const Request& request) {
  if (!failure_.has_begun())
    if (auto trouble = failure_.ended_elsewhere()) {
      trouble->error = complete(std::move(trouble->error), request, queue_.last_sequence(request.kind) + 1);
      return failure_.fail(*std::move(trouble));
    }
  return failure_.status();
}

// The call has come, though too late to begin. On record it takes the number that it would have had, so that this rank
// does not seem to have stayed away.
Status GroupState::turn_away(const Request& request, CallSite at) {
  if (failure_.has_begun()) return failure_.status();
  trace::FlightRing* const flight = queue_.flight(request.kind);
  const std::uint64_t sequence = queue_.last_sequence(request.kind) + 1;
  if (flight) flight->started(sequence, flight_call(request, at, FlightPath::kNotYetKnown));
  const Status failed = why_ended(request);
  if (flight) flight->ended(sequence, false);
  return failed;
}

Status GroupState::monitored_barrier(Duration limit) {
  const auto is_ended = [this] { return failure_.is_ended(); };
  if (is_ended()) return why_ended({});
  if (limit < Duration(0))
    return complete(invalid_argument("the limit of monitored_barrier is " + seconds_text(to_seconds(limit)),
                                     "give the seconds that the slowest rank may take"),
                    {}, queue_.last_sequence(Kind::kBarrier));
  if (size() == 1) return {};
  const Status status = barrier_.run(limit.count() ? limit : limit_, is_ended);
  return is_ended() ? why_ended({}) : status;
}

void GroupState::abort(Error error) { (void)failure_.fail({std::move(error), Process::Evidence::kCause}); }

void GroupState::abandon(Submission& submission) {
  Error error{.code = Code::kAborted, .detail = "an exception ended the call on this rank"};
  error.operation = to_string(submission.request);  // without its number, which only the driver reads
  (void)failure_.fail({complete(std::move(error), submission.request, 0), Process::Evidence::kCause});
  submission.done.wait(false, std::memory_order_acquire);
}

void GroupState::leave(bool unwinding) {
  if (size() == 1) return;
  if (!queue_.is_idle()) {
    if (unwinding)
      (void)failure_.fail({Error{.code = Code::kAborted,
                                 .detail = "an exception ended this rank's use of the group with calls in progress"},
                           Process::Evidence::kCause});
    queue_.drain(now() + process_->farewell_timeout);
  }
  queue_.close();
  if (flight_) flight_->leave();
  if (!failure_.has_begun()) peers_.announce_leaving(unwinding);
}

}  // namespace tutti::comm
