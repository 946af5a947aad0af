// One lock, one table. An answer belongs to a thread here (its Caller is filled and notified) or to a client of the
// server (returned to the server if it submitted, else put in its outbox with a ring of its bell).
//
// A standby gets not the calls but their *effects*, in the order in which the table had them: a change when it
// is carried out (a pop when it gets its value), and the answers of a barrier when it is over. Calls that wait have no
// effect yet, so a standby knows nothing of them: when it takes over, the clients repeat them.
//
// An answer rests on all entries before it, also that of a call that only reads: what it has seen may be known to
// nobody else yet. So answers are held in their order until the standby has acknowledged so many entries. While the
// standby is still being given its copy nothing is held: until it has that, it cannot take over anyway.
#include "tutti/store/shared_table.h"

#include <algorithm>

#include "tutti/store/wire.h"

namespace tutti::store {
namespace {

constexpr Duration kConfirmLimit = std::chrono::seconds(5);  // for a standby, beyond the deadline of a pop

}  // namespace

// ---- sessions ----

std::size_t Sessions::bytes_of(const Reply& reply) {
  std::size_t bytes = sizeof(Reply);
  for (const auto& value : reply.values) bytes += value.size();
  return bytes;
}

Sessions::SharedReply Sessions::find(Origin origin) const {
  const auto found = by_client_.find(origin.client);
  return found != by_client_.end() && found->second->origin == origin ? found->second->reply : nullptr;
}

void Sessions::remember(Origin origin, SharedReply reply) {
  if (origin.client == 0) return;
  forget(origin.client);
  bytes_ += bytes_of(*reply);
  by_client_[origin.client] = by_age_.insert(by_age_.end(), {origin, std::move(reply)});
  while (by_age_.size() > kMost || (bytes_ > kMostBytes && by_age_.size() > 1)) forget(by_age_.front().origin.client);
}

void Sessions::forget(std::uint64_t client) {
  const auto found = by_client_.find(client);
  if (found == by_client_.end()) return;
  bytes_ -= bytes_of(*found->second->reply);
  by_age_.erase(found->second);
  by_client_.erase(found);
}

// ---- the shared table ----

void SharedTable::record(std::string entry) {
  if (!recording_) return;
  if (entries_.empty() && ring_) ring_();
  entries_.push_back(std::move(entry));
  ++recorded_;
}

// Remembers and records what an answer means, before it is given.
void SharedTable::settle(const Table::Answer& answer) {
  std::vector<Origin> met;
  Sessions::SharedReply reply;
  for (const Table::Ticket ticket : answer.tickets) {
    auto node = waiting_.extract(ticket);
    if (node.empty()) continue;
    const Waiting& call = node.mapped();
    if (!must_not_repeat(call.op) || answer.reply.error) continue;
    if (call.origin.client != 0) {
      if (!reply) reply = std::make_shared<const Reply>(answer.reply);
      sessions_.remember(call.origin, reply);
    }
    if (call.op == Op::kPop)
      record(wire::frame_of_change(call.origin, {.op = Op::kPop, .keys = {call.key}}));
    else if (call.origin.client != 0)
      met.push_back(call.origin);
  }
  if (!met.empty() && recording_) record(wire::frame_of_answered(met, answer.reply));
}

// Fills the callers of this process; what is left is the server's.
SharedTable::Answers SharedTable::give(Answers answers) {
  Answers remote;
  for (auto& answer : answers) {
    std::vector<Table::Ticket> elsewhere;
    for (const Table::Ticket t : answer.tickets) {
      const auto caller = callers_.find(t);
      if (caller == callers_.end()) {
        elsewhere.push_back(t);
        continue;
      }
      caller->second->reply = answer.reply;
      caller->second->answered.notify_one();
    }
    if (!elsewhere.empty()) remote.push_back({std::move(elsewhere), std::move(answer.reply)});
  }
  return remote;
}

SharedTable::Answers SharedTable::submit_locked(Table::Ticket ticket, Request request, Origin origin) {
  Answers answers;
  if (const auto known = origin.client != 0 ? sessions_.find(origin) : nullptr) {
    answers.push_back({{ticket}, *known});
  } else {
    const Op op = request.op;
    const bool waits = may_wait(op), changes = must_not_repeat(op) && !waits;
    if (waits)
      waiting_.emplace(ticket,
                       Waiting{origin, op, op == Op::kPop && !request.keys.empty() ? request.keys[0] : std::string()});
    std::string entry = recording_ && changes ? wire::frame_of_change(origin, request) : std::string();
    table_.submit(ticket, std::move(request), answers);
    // The change itself goes before what it sets free: a push before the pop that takes its value.
    if (changes) {
      const Reply& own = answers.at(0).reply;
      if (origin.client != 0) sessions_.remember(origin, std::make_shared<const Reply>(own));
      if (!entry.empty() && !own.error) record(std::move(entry));
    }
    for (const auto& answer : answers) settle(answer);
  }
  if (!holding_ || (!suspended_ && acknowledged_ >= recorded_)) return give(std::move(answers));
  for (auto& answer : answers) held_.push_back({recorded_, std::move(answer)});
  return {};
}

Result<Reply> SharedTable::call(const Request& request, Deadline deadline, const Store::Waiting& waiting,
                                double report_every) {
  MutexLock lock(mutex_);
  if (closed_) return *closed_;
  const Table::Ticket ticket = next_ticket_++;
  Caller caller;
  callers_.emplace(ticket, &caller);
  Answers remote = submit_locked(ticket, request, {});
  if (!remote.empty()) {
    std::move(remote.begin(), remote.end(), std::back_inserter(outbox_));
    if (ring_) ring_();
  }
  Duration next_report = from_seconds(report_every);
  const auto begin = now();
  while (!caller.reply && !closed_) {
    const auto report_at = waiting ? begin + next_report : Clock::time_point::max();
    if (caller.answered.wait_until(lock, std::min(deadline.at(), report_at)) == std::cv_status::no_timeout ||
        caller.reply || closed_)
      continue;
    const Missing missing = table_.missing(ticket);
    if (deadline.expired()) {
      const bool waited = table_.withdraw(ticket);
      waiting_.erase(ticket);
      // What was taken out of a queue is nowhere else.
      const Deadline confirmed = Deadline::after(kConfirmLimit);
      while (!waited && request.op == Op::kPop && !caller.reply && !closed_ && !confirmed.expired())
        caller.answered.wait_until(lock, confirmed.at());
      callers_.erase(ticket);
      if (caller.reply) return *std::move(caller.reply);
      if (waited) return timeout_error(request, missing, deadline);
      return deadline.error("it was carried out here, but the store's standby has not confirmed it",
                            "the standby's machine cannot be reached; the job continues once it counts as lost");
    }
    if (now() >= report_at) {
      next_report += from_seconds(report_every);
      lock.unlock();
      try {
        waiting(missing.ranks, deadline.waited());
      } catch (...) {  // the call ends, and its Caller with it
        lock.lock();
        end_call(ticket);
        throw;
      }
      lock.lock();
    }
  }
  end_call(ticket);
  if (caller.reply) return *std::move(caller.reply);
  return *closed_;
}

// The caller waits no more, answered or not.
void SharedTable::end_call(Table::Ticket ticket) {
  callers_.erase(ticket);
  table_.withdraw(ticket);
  waiting_.erase(ticket);
}

void SharedTable::serve(std::function<void()> ring) {
  const MutexLock lock(mutex_);
  ring_ = std::move(ring);
}

Table::Ticket SharedTable::new_ticket() {
  const MutexLock lock(mutex_);
  return next_ticket_++;
}

SharedTable::Answers SharedTable::submit(Table::Ticket ticket, Request request, Origin origin) {
  const MutexLock lock(mutex_);
  return submit_locked(ticket, std::move(request), origin);
}

SharedTable::Answers SharedTable::take_answers() {
  const MutexLock lock(mutex_);
  return std::exchange(outbox_, {});
}

void SharedTable::forget(std::uint64_t client) {
  const MutexLock lock(mutex_);
  sessions_.forget(client);
  record(wire::frame(wire::Kind::kForget, wire::body_of_client(client)));
}

bool SharedTable::withdraw(Table::Ticket ticket) {
  const MutexLock lock(mutex_);
  waiting_.erase(ticket);
  return table_.withdraw(ticket);
}

Missing SharedTable::missing(Table::Ticket ticket) const {
  const MutexLock lock(mutex_);
  return table_.missing(ticket);
}

void SharedTable::close(Error reason) {
  const MutexLock lock(mutex_);
  closed_ = std::move(reason);
  for (const auto& [ticket, caller] : callers_) caller->answered.notify_one();
}

void SharedTable::open() {
  const MutexLock lock(mutex_);
  closed_.reset();
}

// ---- a standby ----

void SharedTable::begin_replication() {
  const MutexLock lock(mutex_);
  recording_ = true;
  suspended_ = false;
  recorded_ = acknowledged_ = 0;
  entries_.clear();
  std::vector<std::string> copy;  // recorded out here: no lambda is known to hold the lock
  table_.each_content([&](const Request& request) { copy.push_back(wire::frame_of_change({}, request)); });
  sessions_.each([&](Origin origin, const Sessions::SharedReply& reply) {
    copy.push_back(wire::frame_of_answered(std::span(&origin, 1), *reply));
  });
  for (std::string& entry : copy) record(std::move(entry));
  record(wire::frame(wire::Kind::kCopied));
  copied_ = recorded_;
  for (auto& held : held_) held.entries = copied_;  // what they rest on is part of the copy
}

std::vector<std::string> SharedTable::take_entries() {
  const MutexLock lock(mutex_);
  return std::exchange(entries_, {});
}

SharedTable::Answers SharedTable::give_held() {
  Answers answers;
  while (!held_.empty() && (!holding_ || held_.front().entries <= acknowledged_)) {
    answers.push_back(std::move(held_.front().answer));
    held_.pop_front();
  }
  return give(std::move(answers));
}

SharedTable::Answers SharedTable::acknowledge(std::uint64_t entries) {
  const MutexLock lock(mutex_);
  acknowledged_ = entries;
  holding_ = holding_ || entries >= copied_;
  return give_held();
}

bool SharedTable::standby_has_copy() const {
  const MutexLock lock(mutex_);
  return holding_;
}

void SharedTable::suspend() {
  const MutexLock lock(mutex_);
  suspended_ = true;
  recording_ = false;
  entries_.clear();
}

SharedTable::Answers SharedTable::end_replication() {
  const MutexLock lock(mutex_);
  recording_ = holding_ = suspended_ = false;
  entries_.clear();
  return give_held();
}

std::optional<std::string> SharedTable::peek(const std::string& key) const {
  const MutexLock lock(mutex_);
  const std::string* value = table_.find(key);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

Status SharedTable::apply_entry(const wire::Frame& entry) {
  const MutexLock lock(mutex_);
  switch (wire::Kind(entry.kind)) {
    case wire::Kind::kChange: {
      auto [origin, request] = TUTTI_TRY(wire::parse_change(entry));
      Answers answers;
      table_.submit(0, std::move(request), answers);
      if (answers.empty()) return Error{.code = Code::kCorrupt, .detail = "a change that waits"};
      if (answers[0].reply.error)
        return Error{.code = Code::kInternal,
                     .detail = "the standby's table differs from the primary's: " + to_string(*answers[0].reply.error)};
      sessions_.remember(origin, std::make_shared<const Reply>(std::move(answers[0].reply)));
      return {};
    }
    case wire::Kind::kAnswered: {
      auto [origins, reply] = TUTTI_TRY(wire::parse_answered(entry));
      const auto shared = std::make_shared<const Reply>(std::move(reply));
      for (const Origin origin : origins) sessions_.remember(origin, shared);
      return {};
    }
    case wire::Kind::kForget:
      sessions_.forget(TUTTI_TRY(wire::parse_client(entry)));
      return {};
    case wire::Kind::kCopied:
      return {};
    default:
      return Error{.code = Code::kCorrupt, .detail = "an entry of unknown kind"};
  }
}

}  // namespace tutti::store
