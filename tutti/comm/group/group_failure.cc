// How an operation goes wrong, and how its group ends: deaths, limits and departures are noticed, become one error with
// the root cause of the job, and poison the group, so that every later call and every other rank gets that error.
#include <poll.h>

#include <algorithm>

#include "tutti/base/log.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/comm/group/group_state.h"
#include "tutti/comm/layout.h"
#include "tutti/comm/links/call_header.h"

namespace tutti {
namespace {

constexpr const char* kLeftKey = "left";  // in the store: /GROUP/RANK, how that rank left
constexpr const char* kLeftInOrder = "has left and will not take part";
constexpr const char* kCallKey = "call";    // likewise: the collective in which it has waited for long
constexpr const char* kWaitsKey = "waits";  // likewise: the call in which it waited when the group failed
constexpr Duration kAnswer = std::chrono::seconds(1);
constexpr Duration kDepartureShows = std::chrono::milliseconds(200);

std::string ranks_words(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return (ranks.size() == 1 ? "rank " : "ranks ") + ranks_text(ranks);
}

std::string awaited(const Request& request, const Blockers& blockers) {
  if (!blockers.ranks.empty()) return ranks_words(blockers.ranks);
  return blockers.on_device ? detail::words("what stands before it on cuda:", request.device) : "its peers";
}

}  // namespace

// The error comes from the first call that failed; a rank that was stopped or slow meanwhile finds the word of its
// peers and touches none of their memory.
bool GroupState::is_ended() const {
  return poisoned_.load(std::memory_order_acquire) || process_->has_fault() ||
         (poison_word_ && poison_word_->load(std::memory_order_acquire) != 0);
}

Status GroupState::why_ended(const Request& request) {
  if (poisoned_.load(std::memory_order_acquire)) return status();
  Error error{.code = Code::kAborted, .detail = "the job has failed"};
  if (!process_->has_fault()) {
    error.detail = "has ended the group";
    error.peer = int(poison_word_->load(std::memory_order_acquire)) - 1;
  }
  const std::uint64_t sequence = (is_point_to_point(request.kind) ? p2p_sequence_ : sequence_).load() + 1;
  return fail({complete(std::move(error), request, sequence), Process::Evidence::kEcho});
}

// It has come, though too late to be begun. On record it takes the number that it would have had, so that nobody is
// said to have stayed away.
Status GroupState::turn_away(const Request& request, CallSite at) {
  if (poisoned_.load(std::memory_order_acquire)) return status();
  FlightRing* const flight = flight_ring(request.kind);
  const std::uint64_t sequence = (is_point_to_point(request.kind) ? p2p_sequence_ : sequence_).load() + 1;
  if (flight) flight->started(sequence, flight_call(request, at, FlightWay::kNotYetKnown));
  const Status failed = why_ended(request);
  if (flight) flight->ended(sequence, false);
  return failed;
}

// A link through shared memory knows only that its peer is gone; the host knows how.
GroupState::Trouble GroupState::trouble_of(Error error) const {
  if (error.code != Code::kPeerLost) return {std::move(error), Process::Evidence::kCause};
  auto departure = error.peer >= 0 ? departure_of(error.peer) : departure_of_anybody();
  if (!departure) return {std::move(error), Process::Evidence::kLoss};
  departure->error.operation = error.operation;
  return *departure;
}

std::optional<GroupState::Trouble> GroupState::departure_of(int peer) const {
  using Evidence = Process::Evidence;
  if (!process_->host || !is_here(peer)) return {};
  const int local = process_->world[spec_.global_ranks[peer]].local_rank;
  const Host::Peer state = process_->host->state(local);
  if (state == Host::Peer::kAlive) return {};
  Error error{.code = Code::kPeerLost, .peer = peer};
  const std::string pid = detail::words("(pid ", process_->host->pid(local), ") ");
  switch (state) {
    case Host::Peer::kAlive:
      return {};
    case Host::Peer::kLeft:
      error.detail = pid + "has left and will not take part";
      error.hint = "do all ranks make the same number of calls?";
      return Trouble{error, Evidence::kCause};
    case Host::Peer::kFled:
      error.detail = pid + "was driven out by an exception and will not take part";
      error.hint = "its own output says which";
      return Trouble{error, Evidence::kLoss};
    case Host::Peer::kLost:
      error.detail = pid + "has died: it was killed, crashed, or ended without leaving";
      error.hint = "its own output may say why";
      return Trouble{error, Evidence::kLoss};
  }
  return {};
}

// Who has left in good order has done its part.
bool GroupState::is_anybody_lost() const {
  for (int r = 0; r < size(); ++r) {
    if (r == rank()) continue;
    if (const auto departure = departure_of(r); departure && departure->evidence == Process::Evidence::kLoss)
      return true;
  }
  return process_->has_fault();
}

// Another library saw a connection end and does not know whose. The sockets between the ranks of this host do, in this
// moment or the next.
std::optional<GroupState::Trouble> GroupState::departure_of_anybody() const {
  Host* const host = process_->host.get();
  for (const auto patience = Deadline::after(kDepartureShows); host;) {
    for (int r = 0; r < size(); ++r)
      if (r != rank())
        if (auto departure = departure_of(r)) return departure;
    std::vector<pollfd> fds;
    std::vector<int> watched;
    host->add_watched(fds, watched);
    if (patience.expired()) break;
    (void)::poll(fds.data(), fds.size(), patience.poll_timeout_ms());
    for (std::size_t i = 0; i < fds.size(); ++i)
      if (fds[i].revents) (void)host->watch(watched[i]);
  }
  return {};
}

std::optional<GroupState::Trouble> GroupState::health(const Operation& operation) {
  using Evidence = Process::Evidence;
  if (poisoned_.load(std::memory_order_acquire)) return Trouble{status().error(), Evidence::kEcho};
  if (process_->has_fault())
    return Trouble{Error{.code = Code::kAborted, .detail = "the job has failed"}, Evidence::kEcho};
  if (poison_word_) {
    if (const std::uint32_t who = poison_word_->load(std::memory_order_acquire); who != 0)
      return Trouble{Error{.code = Code::kAborted, .detail = "has ended the group", .peer = int(who) - 1},
                     Evidence::kEcho};
  }
  if (!process_->host) return {};
  blockers_.clear();
  operation.blockers(blockers_);
  for (int r : blockers_.ranks)
    if (auto departure = departure_of(r)) {
      if (blockers_.carried && departure->evidence == Evidence::kCause) continue;  // it said goodbye
      peer_gone_[r]->store(true);
      return departure;
    }
  return {};
}

// "; rank 3 (pid 12) is stopped (SIGSTOP or a debugger)" for each such rank on this host, waited for directly or
// through others; "global rank 3" for one that is not in this group: whoever this rank waits for may wait for it
// elsewhere.
std::string GroupState::stopped_ranks() const {
  std::string text;
  for (int local = 0; process_->host && local < process_->host->size(); ++local) {
    const pid_t pid = process_->host->pid(local);
    if (!is_suspended(pid)) continue;
    const int global = process_->host->global_rank(local);
    const auto member = std::find(spec_.global_ranks.begin(), spec_.global_ranks.end(), global);
    const std::string who = member == spec_.global_ranks.end()
                                ? detail::words("global rank ", global)
                                : detail::words("rank ", int(member - spec_.global_ranks.begin()));
    text += detail::words("; ", who, " (pid ", pid, ") is stopped (SIGSTOP or a debugger)");
  }
  return text;
}

const char* GroupState::who_set_limit(const Request& request) const {
  if (request.limit.count() != 0) return "the call came with this limit";
  if (spec_.limit.count() != 0) return "the group was made with this timeout";
  return "TUTTI_TIMEOUT sets the limit";
}

// A call that has not started waits for whatever the head of the queue waits for.
Error GroupState::overdue(const Submission& submission) {
  const Submission& blocked = submission.operation ? submission : *queue_.front();
  Blockers blockers;
  blocked.operation->blockers(blockers);
  const std::string stopped = stopped_ranks();
  std::string detail = "still waiting for ";
  if (&blocked != &submission)
    detail += "its turn behind " + call_text(blocked.request, blocked.sequence) + ", which waits for ";
  Error error = submission.deadline->error(detail + awaited(blocked.request, blockers) + stopped);
  error.hint = stopped.empty() ? "do all ranks make the same calls in the same order? "
                               : "kill -CONT lets a stopped process go on; ";
  error.hint += who_set_limit(submission.request);
  if (!submission.deadline->expired()) {
    error.limit = -1;
    error.hint = "this rank left the group with the call under way: wait() for every Work first";
  }
  return error;
}

void GroupState::warn_of_hang(Submission& submission) {
  submission.warned = true;
  Blockers blockers;
  submission.operation->blockers(blockers);
  log::warn(call_text(submission.request, submission.sequence) + " on group " + spec_.name + ", rank " +
            std::to_string(rank()) + ", has waited " + seconds_text(submission.deadline->waited()) + " of " +
            seconds_text(submission.deadline->limit()) + " for " + awaited(submission.request, blockers) +
            stopped_ranks());
}

// Over links a call that differs is found when its first message arrives. Where none ever arrives, since each waits for
// the other (two roots that are not the same), the ranks find it in the store, where each tells after a second of
// waiting in which call it is.
std::optional<Error> GroupState::compare_calls(Submission& submission) {
  const Request& r = submission.request;
  if ((direct_ && !cuda_->has_nccl()) || !process_->store || is_point_to_point(r.kind)) return {};
  if (submission.deadline->waited() < to_seconds(submission.compare_after)) return {};
  const std::string mine =
      detail::words(std::to_string(submission.sequence), " ", name(r.kind), " ", name(r.dtype), " ",
                    is_reduction(r.kind) ? name(r.op) : "-", " ", has_root(r.kind) ? r.root : 0, " ",
                    r.kind == Kind::kBarrier || has_splits(r) ? std::string("-") : std::to_string(r.count),
                    r.device == kHost      ? ""
                    : cuda_->is_by_nccl(r) ? " nccl"
                                           : " staged");
  const bool first = submission.compare_after == std::chrono::seconds(1);
  submission.compare_after *= 2;
  if (first && !process_->store->set(store_key(kCallKey, rank()), mine + "\n" + call_text(r, submission.sequence)).ok())
    submission.compare_after = std::chrono::hours(24 * 365);  // who cannot be asked is not asked again
  Blockers blockers;
  submission.operation->blockers(blockers);
  for (const int peer : blockers.ranks) {
    const std::string key = store_key(kCallKey, peer);
    const auto told = process_->store->check({key});
    if (!told.ok()) submission.compare_after = std::chrono::hours(24 * 365);
    if (!told.ok() || !*told) continue;
    const auto theirs = process_->store->get(key, Deadline::after(kAnswer));
    if (!theirs.ok()) continue;
    const std::string same_turn = std::to_string(submission.sequence) + " ";
    const std::size_t line = theirs->find('\n');
    if (!theirs->starts_with(same_turn) || line == std::string::npos || theirs->substr(0, line) == mine) continue;
    return Error{
        .code = Code::kMismatch,
        .detail = "called " + theirs->substr(line + 1) + " while this rank called " + call_text(r, submission.sequence),
        .hint = "all ranks of a group must make the same calls in the same order",
        .peer = peer};
  }
  return {};
}

Error GroupState::complete(Error error, const Request& request, std::uint64_t sequence) const {
  if (error.group.empty()) error.group = spec_.name;
  if (error.rank < 0) error.rank = rank();
  if (error.operation.empty()) error.operation = call_text(request, sequence);
  return error;
}

// The order matters: the peers on this host see at once that the group has ended, but find the root cause in the store
// before they look further; those elsewhere see their links end only after it is there.
Status GroupState::fail(Trouble trouble) {
  MutexLock lock(poison_mutex_);
  if (!poison_.ok()) return poison_;
  Error& error = trouble.error;
  if (error.group.empty()) error.group = spec_.name;
  if (error.rank < 0) error.rank = rank();
  poisoned_.store(true, std::memory_order_release);
  if (poison_word_) {
    std::uint32_t none = 0;
    poison_word_->compare_exchange_strong(none, std::uint32_t(rank()) + 1);
  }
  if (process_->host)
    for (int r = 0; r < process_->host->size(); ++r)
      if (r != process_->host->rank()) process_->host->bell(r).ring();
  process_->write_flight(FlightRecorder::Why::kFailure, to_string(error));
  if (!all_are_here() && process_->store) {
    (void)process_->store->set(store_key(kWaitsKey, rank()), error.operation);
    if (error.code == Code::kTimeout) ask_who_waits(error);
    if (error.code == Code::kPeerLost && error.peer >= 0 && !is_here(error.peer)) learn_of_leaving(error);
  }
  if (error.code == Code::kPeerLost && error.peer >= 0) process_->lost(spec_.global_ranks[error.peer]);
  if (process_->page && trouble.evidence == Process::Evidence::kEcho) process_->page->set_echoes();
  error.cause = process_->root_cause(error, spec_.id, trouble.evidence);
  poison_ = Status(error);
  if (backend_) backend_->abort();
  cuda_->abort();
  for (const auto& links : links_)
    for (const auto& link : links)
      if (link) link->shut();
  if (process_->engine) process_->engine->notify();
  return poison_;
}

void GroupState::abort(Error error) { (void)fail({std::move(error), Process::Evidence::kCause}); }

void GroupState::abandon(Submission& submission) {
  const Error error{.code = Code::kAborted, .detail = "an exception drove this rank out of the call"};
  (void)fail({complete(error, submission.request, submission.sequence), Process::Evidence::kCause});
  process_->engine->notify();
  submission.done.wait(false, std::memory_order_acquire);
}

void GroupState::leave(bool unwinding) {
  if (size() == 1) return;
  if (pending_.load() > 0) {
    if (unwinding)
      (void)fail({Error{.code = Code::kAborted, .detail = "an exception drove this rank out with calls under way"},
                  Process::Evidence::kCause});
    leave_by_.store((now() + process_->farewell_timeout).time_since_epoch().count());
    process_->engine->notify();
    for (int left; (left = pending_.load()) > 0;) pending_.wait(left);
  }
  process_->engine->forget(this);
  if (flight_) flight_->leave();
  tell_of_leaving(unwinding);
}

// For ranks on other hosts, which see no more than a connection that ends. Those on this host hear the goodbye.
void GroupState::tell_of_leaving(bool unwinding) {
  if (all_are_here() || !process_->store || poisoned_.load()) return;
  (void)process_->store->set(store_key(kLeftKey, rank()),
                             unwinding ? "was driven out by an exception and will not take part" : kLeftInOrder);
}

std::string GroupState::store_key(const char* what, int rank) const {
  return detail::words(what, "/", std::to_string(spec_.id), "/", rank);
}

// A connection ended: whether the peer had told that it leaves.
void GroupState::learn_of_leaving(Error& error) {
  const std::string how = word_of_leaving(error.peer);
  if (how.empty()) return;
  error.detail = how;
  error.hint = "do all ranks make the same number of calls?";
}

std::string GroupState::word_of_leaving(int peer) const {
  if (!process_->store) return {};
  const std::string key = store_key(kLeftKey, peer);
  const auto left = process_->store->check({key});
  if (!left.ok() || !*left) return {};
  const auto how = process_->store->get(key, Deadline::after(kAnswer));
  return how.ok() ? *how : std::string();
}

bool GroupState::has_left(int peer) const {
  if (!is_here(peer)) return word_of_leaving(peer) == kLeftInOrder;
  const int local = process_->world[spec_.global_ranks[peer]].local_rank;
  return process_->host && process_->host->state(local) == Host::Peer::kLeft;
}

// In a ring everybody waits for a neighbour, and all but one of them for nothing worse than that. Who can, says in the
// store where it waits; so the one that does not is the one to look at.
void GroupState::ask_who_waits(Error& error) {
  std::vector<std::string> keys;
  for (int r = 0; r < size(); ++r) keys.push_back(store_key(kWaitsKey, r));
  if (process_->store->wait(keys, Deadline::after(kAnswer)).ok()) return;
  std::vector<int> silent;
  for (int r = 0; r < size(); ++r)
    if (const auto told = process_->store->check({keys[r]}); told.ok() && !*told) silent.push_back(r);
  if (!silent.empty())
    error.detail += std::string("; ") + (silent.size() == 1 ? "rank " : "ranks ") + ranks_text(silent) +
                    (silent.size() == 1 ? " gives" : " give") + " no answer";
}

Status GroupState::status() const {
  if (!poisoned_.load(std::memory_order_acquire)) return {};
  MutexLock lock(poison_mutex_);
  return poison_;
}

}  // namespace tutti
