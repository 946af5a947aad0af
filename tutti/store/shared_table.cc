// One lock, one table. Answers are sorted by who waits: a thread here (its Caller is filled and notified) or a client
// of the server (returned to the server if it submitted, else put in its outbox with a ring of its bell).
#include "tutti/store/shared_table.h"

#include <algorithm>

namespace tutti {

// Fills the callers of this process; what is left is the server's.
SharedTable::Answers SharedTable::submit_locked(Table::Ticket ticket, StoreRequest request) {
  Answers answers, remote;
  table_.submit(ticket, std::move(request), answers);
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

Result<Reply> SharedTable::call(const StoreRequest& request, Deadline deadline, const Store::Waiting& waiting,
                                double report_every) {
  MutexLock lock(mutex_);
  if (closed_) return *closed_;
  const Table::Ticket ticket = next_ticket_++;
  Caller caller;
  callers_.emplace(ticket, &caller);
  Answers remote = submit_locked(ticket, request);
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
      table_.withdraw(ticket);
      callers_.erase(ticket);
      return timeout_error(request, missing, deadline);
    }
    if (now() >= report_at) {
      next_report += from_seconds(report_every);
      lock.unlock();
      waiting(missing.ranks, deadline.waited());
      lock.lock();
    }
  }
  callers_.erase(ticket);
  if (caller.reply) return *std::move(caller.reply);
  table_.withdraw(ticket);
  return *closed_;
}

void SharedTable::serve(std::function<void()> ring) {
  const MutexLock lock(mutex_);
  ring_ = std::move(ring);
}

Table::Ticket SharedTable::new_ticket() {
  const MutexLock lock(mutex_);
  return next_ticket_++;
}

SharedTable::Answers SharedTable::submit(Table::Ticket ticket, StoreRequest request) {
  const MutexLock lock(mutex_);
  return submit_locked(ticket, std::move(request));
}

SharedTable::Answers SharedTable::take_answers() {
  const MutexLock lock(mutex_);
  return std::exchange(outbox_, {});
}

bool SharedTable::withdraw(Table::Ticket ticket) {
  const MutexLock lock(mutex_);
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

}  // namespace tutti
