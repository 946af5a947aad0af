#include "tutti/comm/group/failure.h"

#include <algorithm>

namespace tutti::comm {

Failure::Failure(Process& process, const GroupSpec& spec, const Peers& peers, Diagnosis& diagnosis, Hooks hooks)
    : process_(process), spec_(spec), peers_(peers), diagnosis_(diagnosis), hooks_(std::move(hooks)) {}

Failure::~Failure() {
  if (spared_.valid()) spared_.wait();
}

// A rank that was stopped or slow while the others ended the group finds their mark, and touches none of their memory.
std::optional<Trouble> Failure::ended_elsewhere() const {
  using Evidence = Process::Evidence;
  if (process_.has_fault())
    return Trouble{Error{.code = Code::kAborted, .detail = "the job has failed"}, Evidence::kEcho};
  const std::uint32_t who = poison_word_ ? poison_word_->load(std::memory_order_acquire) : 0;
  if (who == 0) return {};
  return Trouble{Error{.code = Code::kAborted, .detail = "has ended the group", .peer = int(who) - 1}, Evidence::kEcho};
}

Status Failure::status() const {
  if (phase_.load(std::memory_order_acquire) == Phase::kWell) return {};
  phase_.wait(Phase::kEnding, std::memory_order_acquire);
  MutexLock lock(mutex_);
  return status_;
}

Status Failure::fail(Trouble trouble) {
  if (begin(std::move(trouble))) conclude();
  return status();
}

void Failure::fail_in_background(Trouble trouble) {
  if (!begin(std::move(trouble))) return;
  if (concluding_.run([this] { conclude(); }).ok()) return;
  const auto ended = std::make_shared<std::promise<void>>();
  spared_ = ended->get_future();
  const Status spare = process_.spare_thread.run([this, ended] {
    conclude();
    ended->set_value();
  });
  TUTTI_INVARIANT(spare.ok(), "the spare thread is not kept");
}

bool Failure::begin(Trouble trouble) {
  {
    MutexLock lock(mutex_);
    if (phase_.load(std::memory_order_relaxed) != Phase::kWell) return false;
    trouble_ = std::move(trouble);
    phase_.store(Phase::kEnding, std::memory_order_release);
  }
  hooks_.stop();
  if (poison_word_) {
    std::uint32_t none = 0;
    poison_word_->compare_exchange_strong(none, std::uint32_t(spec_.rank) + 1);
  }
  if (process_.host)
    for (int r = 0; r < process_.host->size(); ++r)
      if (r != process_.host->rank()) process_.host->bell(r).ring();
  return true;
}

void Failure::conclude() {
  Trouble trouble = [this] {
    MutexLock lock(mutex_);
    return trouble_;
  }();
  if (!trouble.evidence) trouble = peers_.explain(std::move(trouble.error));
  Error& error = trouble.error;
  if (error.group.empty()) error.group = spec_.name;
  if (error.rank < 0) error.rank = spec_.rank;
  if (trouble.is_overdue) diagnosis_.add_stopped(error);
  process_.write_flight(trace::FlightRecorder::Why::kFailure, to_string(error));
  const bool is_peer_known = error.code == Code::kPeerLost && error.peer >= 0;
  if (!peers_.are_all_here()) {
    diagnosis_.announce_end(error.operation);
    if (error.code == Code::kTimeout) diagnosis_.add_silent(error);
    if (is_peer_known && !peers_.is_here(error.peer)) peers_.add_note_of_leaving(error);
  }
  const int lost = is_peer_known ? spec_.global_ranks[std::size_t(error.peer)] : -1;
  if (is_peer_known) {
    process_.lost(lost);
    const std::vector<int> gone = process_.lost_ranks();
    for (int r = 0; r < spec_.size(); ++r)
      if (std::find(gone.begin(), gone.end(), spec_.global_ranks[std::size_t(r)]) != gone.end())
        error.lost.push_back(r);
  }
  if (process_.page && trouble.evidence == Process::Evidence::kEcho) process_.page->set_echoes();
  process_.add_root_cause(error, spec_.id, *trouble.evidence);
  if (is_peer_known) process_.leave_for(lost);
  const Status status(error);
  hooks_.end(status);
  {
    MutexLock lock(mutex_);
    status_ = status;
  }
  phase_.store(Phase::kEnded, std::memory_order_release);
  phase_.notify_all();
}

}  // namespace tutti::comm
