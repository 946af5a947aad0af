// The semantics of all stores.
//
// A request either *completes* at once, or is *parked*: get and wait under the first key that they lack, pop under its
// queue, barrier and gather_all in a *pending barrier*. A call that sets a key re-examines the requests parked under
// it: each either completes or moves on to the next key that it lacks. So a wait costs nothing until something happens
// to a key it needs.
//
// Keys, queues and barriers are three name spaces. A barrier ends when its last rank enters, for all at once, so its
// key is free again at that moment. Two requests under one ticket are the owner's mistake.
#include "tutti/store/table.h"

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti::store {
namespace {

Reply failure(Error error) {
  Reply reply;
  reply.error = std::move(error);
  return reply;
}

Reply failure(Code code, std::string detail, std::string hint = {}) {
  return failure(Error{.code = code, .detail = std::move(detail), .hint = std::move(hint)});
}

Reply outcome(const Status& status) { return status.ok() ? Reply{} : failure(status.error()); }

// Takes the ticket off the list of `key`.
void unlist(std::unordered_map<std::string, std::deque<Table::Ticket>>& lists, const std::string& key,
            Table::Ticket ticket) {
  const auto list = lists.find(key);
  if (list == lists.end()) return;
  std::erase(list->second, ticket);
  if (list->second.empty()) lists.erase(list);
}

}  // namespace

void Table::submit(Ticket ticket, Request request, std::vector<Answer>& answers) {
  if (const Status valid = check_request(request); !valid.ok()) {
    answers.push_back({{ticket}, failure(valid.error())});
  } else if (request.op == Op::kBarrier || request.op == Op::kGatherAll) {
    enter(ticket, std::move(request), answers);
  } else if (!park(ticket, request, answers)) {
    const std::size_t own = answers.size();
    answers.push_back({{ticket}, {}});
    Reply reply = carry_out(request, answers);  // may append answers to others
    answers[own].reply = std::move(reply);
  }
}

// Whether the request was dealt with: parked, or turned away.
bool Table::park(Ticket ticket, Request& request, std::vector<Answer>& answers) {
  const bool for_keys = request.op == Op::kGet || request.op == Op::kWait;
  const std::string* lacking = nullptr;
  if (for_keys) lacking = first_missing(request.keys);
  if (request.op == Op::kPop && !queues_.contains(request.keys[0])) lacking = &request.keys[0];
  if (lacking == nullptr) return false;
  if (pending_.size() >= kMaxWaiters) {
    answers.push_back({{ticket}, failure(Code::kLimit, std::to_string(kMaxWaiters) + " calls already wait")});
    return true;
  }
  (for_keys ? waiters_ : poppers_)[*lacking].push_back(ticket);
  pending_.emplace(ticket, std::move(request));
  return true;
}

Reply Table::carry_out(Request& request, std::vector<Answer>& answers) {
  Reply reply;
  switch (request.op) {
    case Op::kSet:
      return outcome(store(request.keys[0], std::move(request.values[0]), answers));
    case Op::kGet:
      return get(request);
    case Op::kAdd:
      return add(request, answers);
    case Op::kCompareSet:
      return compare_set(request, answers);
    case Op::kWait:
      return reply;
    case Op::kCheck:
      reply.flag = first_missing(request.keys) == nullptr;
      return reply;
    case Op::kRemove:
      return remove(request.keys[0]);
    case Op::kNumKeys:
      reply.number = std::int64_t(values_.size() + queues_.size());
      return reply;
    case Op::kAppend: {
      const auto found = values_.find(request.keys[0]);
      return outcome(store(request.keys[0],
                           found == values_.end() ? request.values[0] : found->second + request.values[0], answers));
    }
    case Op::kMultiSet: {
      std::size_t bytes = 0;
      for (std::size_t i = 0; i < request.keys.size(); ++i) bytes += request.keys[i].size() + request.values[i].size();
      if (const Status room = admit(request.keys.size(), bytes); !room.ok()) return outcome(room);  // all or nothing
      for (std::size_t i = 0; i < request.keys.size(); ++i)
        if (const Status stored = store(request.keys[i], std::move(request.values[i]), answers); !stored.ok())
          return outcome(stored);
      return reply;
    }
    case Op::kPush:
      return outcome(push(request.keys[0], std::move(request.values[0]), answers));
    case Op::kPop: {
      const auto queue = queues_.find(request.keys[0]);
      reply.values.push_back(std::move(queue->second.front()));
      queue->second.pop_front();
      bytes_ -= reply.values[0].size();
      if (queue->second.empty()) {
        bytes_ -= queue->first.size();
        queues_.erase(queue);
      }
      return reply;
    }
    case Op::kQueueLength: {
      const auto queue = queues_.find(request.keys[0]);
      reply.number = queue == queues_.end() ? 0 : std::int64_t(queue->second.size());
      return reply;
    }
    case Op::kBarrier:
    case Op::kGatherAll:
      break;  // submit() sends these to enter()
  }
  return failure(Code::kInternal, "an unknown operation");
}

Reply Table::get(const Request& request) const {
  std::size_t sum = 0;
  for (const auto& key : request.keys) sum += values_.find(key)->second.size();
  if (sum > kMaxCallBytes)
    return failure(
        Code::kLimit,
        "the values have " + bytes_text(sum) + " in all, at most " + bytes_text(kMaxCallBytes) + " fit one answer",
        "ask for fewer keys at a time");
  Reply reply;
  for (const auto& key : request.keys) reply.values.push_back(values_.find(key)->second);
  return reply;
}

Reply Table::add(const Request& request, std::vector<Answer>& answers) {
  const auto found = values_.find(request.keys[0]);
  std::int64_t number = 0;
  if (found != values_.end()) {
    const auto held = parse_int(found->second);
    if (!held)
      return failure(Code::kInvalidArgument,
                     "the key holds " + std::to_string(found->second.size()) + " bytes that are not a decimal number");
    number = *held;
  }
  if (__builtin_add_overflow(number, request.number, &number))
    return failure(Code::kLimit, "the sum does not fit 64 bits");
  Reply reply = outcome(store(request.keys[0], std::to_string(number), answers));
  if (!reply.error) reply.number = number;
  return reply;
}

Reply Table::compare_set(Request& request, std::vector<Answer>& answers) {
  const std::string& key = request.keys[0];
  const auto found = values_.find(key);
  const bool exists = found != values_.end(), expects = request.values.size() == 2;
  Reply reply;
  reply.flag = exists == expects && (!exists || found->second == request.values[1]);
  if (reply.flag) {
    if (const Status stored = store(key, request.values[0], answers); !stored.ok()) return outcome(stored);
    reply.values = {std::move(request.values[0])};
  } else if (exists) {
    reply.values = {found->second};
  }
  return reply;
}

Reply Table::remove(const std::string& key) {
  Reply reply;
  if (const auto found = values_.find(key); found != values_.end()) {
    bytes_ -= key.size() + found->second.size();
    values_.erase(found);
    reply.flag = true;
  }
  if (const auto queue = queues_.find(key); queue != queues_.end()) {
    bytes_ -= key.size();
    for (const auto& value : queue->second) bytes_ -= value.size();
    queues_.erase(queue);
    reply.flag = true;
  }
  return reply;
}

// Whether this much more fits.
Status Table::admit(std::size_t more_keys, std::size_t more_bytes) const {
  if (values_.size() + queues_.size() + more_keys > kMaxKeys)
    return Error{.code = Code::kLimit,
                 .detail = "the store holds " + std::to_string(values_.size() + queues_.size()) + " keys, at most " +
                           std::to_string(kMaxKeys) + " are allowed",
                 .hint = "remove keys that are no longer needed"};
  if (bytes_ + more_bytes > kMaxTableBytes)
    return Error{.code = Code::kLimit,
                 .detail = "the store holds " + bytes_text(bytes_) + ", with this it would be more than " +
                           bytes_text(kMaxTableBytes),
                 .hint = "remove keys that are no longer needed"};
  return {};
}

Status Table::store(const std::string& key, std::string value, std::vector<Answer>& answers) {
  if (value.size() > kMaxValueBytes)  // append may have made it so
    return Error{.code = Code::kLimit,
                 .detail = "the value would have " + bytes_text(value.size()) + ", at most " +
                           bytes_text(kMaxValueBytes) + " are allowed"};
  const auto found = values_.find(key);
  if (found != values_.end()) {
    if (value.size() > found->second.size()) TUTTI_TRY(admit(0, value.size() - found->second.size()));
    bytes_ = bytes_ - found->second.size() + value.size();
    found->second = std::move(value);
    return {};  // it existed, so no call waits for it
  }
  TUTTI_TRY(admit(1, key.size() + value.size()));
  bytes_ += key.size() + value.size();
  values_.emplace(key, std::move(value));
  release_waiters(key, answers);
  return {};
}

void Table::release_waiters(const std::string& key, std::vector<Answer>& answers) {
  auto list = waiters_.extract(key);
  if (list.empty()) return;
  for (const Ticket ticket : list.mapped()) {
    const auto waiting = pending_.find(ticket);
    if (const std::string* lacking = first_missing(waiting->second.keys)) {
      waiters_[*lacking].push_back(ticket);
      continue;
    }
    answers.push_back({{ticket}, waiting->second.op == Op::kGet ? get(waiting->second) : Reply{}});
    pending_.erase(waiting);
  }
}

// There must be room for the value although a popper waits for it: a standby of this table stores it before it learns
// of the pop.
Status Table::push(const std::string& key, std::string value, std::vector<Answer>& answers) {
  const bool is_new = !queues_.contains(key);
  const std::size_t bytes = value.size() + (is_new ? key.size() : 0);
  TUTTI_TRY(admit(is_new ? 1 : 0, bytes));
  if (const auto list = poppers_.find(key); list != poppers_.end()) {  // the pop that has waited longest takes it
    const Ticket ticket = list->second.front();
    list->second.pop_front();
    if (list->second.empty()) poppers_.erase(list);
    pending_.erase(ticket);
    Reply reply;
    reply.values.push_back(std::move(value));
    answers.push_back({{ticket}, std::move(reply)});
    return {};
  }
  bytes_ += bytes;
  queues_[key].push_back(std::move(value));
  return {};
}

void Table::enter(Ticket ticket, Request request, std::vector<Answer>& answers) {
  const auto turn_away = [&](Reply reply) { answers.push_back({{ticket}, std::move(reply)}); };
  const std::string key = request.keys[0];
  auto found = barriers_.find(key);
  if (found != barriers_.end()) {
    const PendingBarrier& pending = found->second;
    const std::string other = "rank " + std::to_string(pending.entered.begin()->first);
    if (pending.op != request.op)
      return turn_away(
          failure(Code::kMismatch,
                  other + " called " + (pending.op == Op::kBarrier ? "barrier" : "gather_all") + " with this key",
                  "all ranks must make the same calls in the same order"));
    if (pending.size != request.size)
      return turn_away(failure(Code::kMismatch,
                               other + " counts " + std::to_string(pending.size) + " ranks, rank " +
                                   std::to_string(request.rank) + " counts " + std::to_string(request.size),
                               "start all ranks with the same world size"));
    if (pending.entered.contains(request.rank))
      return turn_away(
          failure(Code::kMismatch,
                  "rank " + std::to_string(request.rank) + " has entered already: two processes have the same rank",
                  "give each process its own rank"));
  }
  const std::size_t bytes = request.values.empty() ? 0 : request.values[0].size();
  if (found != barriers_.end() && found->second.bytes + bytes > kMaxCallBytes)
    return turn_away(
        failure(Code::kLimit, "the values of all ranks have more than " + bytes_text(kMaxCallBytes) + " in all"));
  if (const Status room = admit(0, bytes); !room.ok()) return turn_away(outcome(room));
  if (pending_.size() >= kMaxWaiters || barriers_.size() >= kMaxKeys)
    return turn_away(failure(Code::kLimit, std::to_string(pending_.size()) + " calls already wait"));

  if (found == barriers_.end())
    found = barriers_.emplace(key, PendingBarrier{.op = request.op, .size = request.size}).first;
  PendingBarrier& pending = found->second;
  bytes_ += bytes;
  pending.bytes += bytes;
  pending.entered.emplace(request.rank, ticket);
  if (int(pending.entered.size()) < pending.size) {
    pending_.emplace(ticket, std::move(request));  // keeps this rank's value until all are here
    return;
  }
  Answer answer;
  for (const auto& [rank, entrant] : pending.entered) {
    answer.tickets.push_back(entrant);
    auto waiting = pending_.extract(entrant);
    Request& entry = waiting.empty() ? request : waiting.mapped();  // the last to enter does not wait
    if (entry.op == Op::kGatherAll) answer.reply.values.push_back(std::move(entry.values[0]));
  }
  bytes_ -= pending.bytes;
  barriers_.erase(found);
  answers.push_back(std::move(answer));
}

const std::string* Table::find(const std::string& key) const {
  const auto at = values_.find(key);
  return at == values_.end() ? nullptr : &at->second;
}

bool Table::withdraw(Ticket ticket) {
  auto waiting = pending_.extract(ticket);
  if (waiting.empty()) return false;
  const Request& request = waiting.mapped();
  if (request.op == Op::kBarrier || request.op == Op::kGatherAll) {
    const auto pending = barriers_.find(request.keys[0]);
    const std::size_t bytes = request.values.empty() ? 0 : request.values[0].size();
    bytes_ -= bytes;
    pending->second.bytes -= bytes;
    pending->second.entered.erase(request.rank);
    if (pending->second.entered.empty()) barriers_.erase(pending);
  } else if (request.op == Op::kPop) {
    unlist(poppers_, request.keys[0], ticket);
  } else {
    for (const auto& key : request.keys) unlist(waiters_, key, ticket);
  }
  return true;
}

Missing Table::missing(Ticket ticket) const {
  Missing missing;
  const auto waiting = pending_.find(ticket);
  if (waiting == pending_.end()) return missing;
  const Request& request = waiting->second;
  if (request.op == Op::kBarrier || request.op == Op::kGatherAll) {
    const PendingBarrier& pending = barriers_.find(request.keys[0])->second;
    for (int rank = 0; rank < pending.size; ++rank)
      if (!pending.entered.contains(rank)) missing.ranks.push_back(rank);
  } else if (request.op == Op::kPop) {
    missing.keys = request.keys;
  } else {
    std::copy_if(request.keys.begin(), request.keys.end(), std::back_inserter(missing.keys),
                 [&](const std::string& key) { return !values_.contains(key); });
  }
  return missing;
}

const std::string* Table::first_missing(const std::vector<std::string>& keys) const {
  const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const std::string& key) { return !values_.contains(key); });
  return found == keys.end() ? nullptr : &*found;
}

}  // namespace tutti::store
