// Replication by a shared log. A call that *changes* the table is appended to the log under the exclusive lock and then
// applied; since every handle applies the same records in the same order, all tables are equal up to what each has
// read. A call that only *looks* is not written: the handle catches up with the log and looks at its own table.
//
// Waiting is local: a get that finds no key waits for the file to change and looks again. A pop is only written once
// there is something to pop, else each table would hand the next value to another process. A barrier is written on
// entry, and completes for each rank when its table sees the last entry; who gives up writes a withdrawal.
//
// payload  u32 author (offset of the author's first record, 0 in that record itself), u32 sequence, u8 kind (an Op, or
//          one of the two below), then the body of a request as on the wire
#include "tutti/store/file_store.h"

#include <algorithm>
#include <cstring>

#include "tutti/store/file_log.h"
#include "tutti/store/wire.h"

namespace tutti {
namespace {

constexpr std::uint8_t kArrival = 128, kWithdrawal = 129;
constexpr std::size_t kPrefix = 9;
constexpr Duration kLockGrace = std::chrono::seconds(5);  // beyond a call's deadline, to take an entry back
constexpr Duration kOwnerCheck = std::chrono::seconds(1);

std::string payload_of(store::Table::Ticket ticket, std::uint8_t kind, std::string_view body) {
  std::string out(kPrefix, '\0');
  const auto author = std::uint32_t(ticket >> 32), sequence = std::uint32_t(ticket);
  std::memcpy(out.data(), &author, 4);
  std::memcpy(out.data() + 4, &sequence, 4);
  out[8] = char(kind);
  out += body;
  return out;
}

}  // namespace

FileStore::FileStore(std::unique_ptr<store::FileLog> log) : log_(std::move(log)) {}
FileStore::~FileStore() = default;

Result<std::unique_ptr<FileStore>> FileStore::open(std::unique_ptr<store::FileLog> log, Deadline deadline) {
  std::unique_ptr<FileStore> store(new FileStore(std::move(log)));
  const MutexLock lock(store->mutex_);
  const auto alone = TUTTI_TRY(store->log_->lock_exclusive(deadline));
  TUTTI_TRY(store->catch_up());
  store->author_ = std::uint32_t(TUTTI_TRY(store->log_->append(payload_of(0, kArrival, {}))));
  return store;
}

Result<std::unique_ptr<FileStore>> FileStore::create(const std::string& path, const std::string& job) {
  return open(TUTTI_TRY(store::FileLog::create(path, job)), Deadline::after_seconds(60));
}

Result<std::unique_ptr<FileStore>> FileStore::join(const std::string& path, const std::string& job, Deadline deadline) {
  return open(TUTTI_TRY(store::FileLog::join(path, job, deadline)), deadline);
}

Result<std::unique_ptr<Store>> FileStore::clone(Deadline deadline) {
  MutexLock lock(mutex_);
  const std::string path = log_->path();
  const store::FileLogHeader header = log_->header();
  lock.unlock();
  auto log = TUTTI_TRY(store::FileLog::join(path, header.job, deadline));
  if (log->header().instance != header.instance)
    return Error{.code = Code::kRefused, .detail = "the store file " + path + " has been replaced by a later run"};
  auto copy = TUTTI_TRY(open(std::move(log), deadline));
  copy->set_call_timeout(call_timeout());
  return std::unique_ptr<Store>(std::move(copy));
}

Result<store::Reply> FileStore::call(const store::Request& request, Deadline deadline, const Waiting& waiting) {
  const MutexLock lock(mutex_);
  switch (request.op) {
    case store::Op::kSet:
    case store::Op::kAdd:
    case store::Op::kCompareSet:
    case store::Op::kRemove:
    case store::Op::kAppend:
    case store::Op::kMultiSet:
    case store::Op::kPush:
      return change(request, deadline);
    case store::Op::kGet:
    case store::Op::kWait:
    case store::Op::kCheck:
    case store::Op::kNumKeys:
    case store::Op::kQueueLength:
      return look(request, deadline);
    case store::Op::kPop:
      return pop_value(request, deadline);
    case store::Op::kBarrier:
    case store::Op::kGatherAll:
      return meet(request, deadline, waiting);
  }
  return Error{.detail = "an unknown operation"};
}

Result<store::Reply> FileStore::change(const store::Request& request, Deadline deadline) {
  const auto lock = TUTTI_TRY(log_->lock_exclusive(deadline));
  TUTTI_TRY(catch_up());
  return *take_answer(TUTTI_TRY(record(request)));
}

Result<store::Reply> FileStore::look(const store::Request& request, Deadline deadline) {
  const store::Table::Ticket ticket = new_ticket();
  while (true) {
    log_->drain_changes();
    {
      const auto lock = TUTTI_TRY(log_->lock_shared(deadline));
      TUTTI_TRY(catch_up());
    }
    apply(ticket, request);
    if (auto reply = take_answer(ticket)) return *std::move(reply);
    const store::Missing missing = table_.missing(ticket);
    table_.withdraw(ticket);
    if (deadline.expired()) return timeout_error(request, missing, deadline);
    TUTTI_TRY(wait_change(deadline));
  }
}

Result<store::Reply> FileStore::pop_value(const store::Request& request, Deadline deadline) {
  const store::Request length{.op = store::Op::kQueueLength, .keys = request.keys};
  while (true) {
    log_->drain_changes();
    {
      const auto lock = TUTTI_TRY(log_->lock_exclusive(deadline));
      TUTTI_TRY(catch_up());
      const store::Table::Ticket ticket = new_ticket();
      apply(ticket, length);
      if (take_answer(ticket)->number > 0) return *take_answer(TUTTI_TRY(record(request)));
    }
    if (deadline.expired()) return timeout_error(request, store::Missing{.keys = request.keys}, deadline);
    TUTTI_TRY(wait_change(deadline));
  }
}

Result<store::Reply> FileStore::meet(const store::Request& request, Deadline deadline, const Waiting& waiting) {
  store::Table::Ticket ticket = 0;
  {
    const auto lock = TUTTI_TRY(log_->lock_exclusive(deadline));
    TUTTI_TRY(catch_up());
    ticket = TUTTI_TRY(record(request));
  }
  double next_report = deadline.waited() + kReportEvery;
  while (true) {
    if (auto reply = take_answer(ticket)) return *std::move(reply);
    log_->drain_changes();
    {
      const auto lock =
          TUTTI_TRY(log_->lock_shared(Deadline::after(kLockGrace)));  // entered: we must not go without a withdrawal
      TUTTI_TRY(catch_up());
    }
    if (auto reply = take_answer(ticket)) return *std::move(reply);
    const store::Missing missing = table_.missing(ticket);
    if (deadline.expired()) break;
    if (waiting && deadline.waited() >= next_report) {
      next_report += kReportEvery;
      waiting(missing.ranks, deadline.waited());
    }
    TUTTI_TRY(wait_change(deadline));
  }
  const auto lock = TUTTI_TRY(log_->lock_exclusive(Deadline::after(kLockGrace)));
  TUTTI_TRY(catch_up());
  if (auto reply = take_answer(ticket)) return *std::move(reply);
  const store::Missing missing = table_.missing(ticket);
  TUTTI_TRY(log_->append(payload_of(ticket, kWithdrawal, {})));
  table_.withdraw(ticket);
  return timeout_error(request, missing, deadline);
}

// Until something changes; now and then also looks whether the owner is still there, for nothing tells of the end of
// its lock.
Status FileStore::wait_change(Deadline deadline) {
  const Deadline turn = deadline.at_most(kOwnerCheck);
  TUTTI_TRY(log_->wait_change(turn));
  if (!turn.expired() || log_->owner_lives()) return {};
  return Error{.code = Code::kPeerLost,
               .detail = "the process that keeps the store file " + log_->path() + " (pid " +
                         std::to_string(log_->header().pid) + " on " + log_->header().host + ") has ended",
               .hint = "its log says why"};
}

// Applies what others have written. With a lock held.
Status FileStore::catch_up() {
  const auto apply_one = [this](std::uint64_t offset, std::span<const std::byte> payload)
                             TUTTI_REQUIRES(mutex_) -> Status {
    const auto damaged = [&]() TUTTI_REQUIRES(mutex_) {
      return Error{
          .code = Code::kCorrupt,
          .detail = "the store file " + log_->path() + " has a malformed record at byte " + std::to_string(offset)};
    };
    if (payload.size() < kPrefix) return damaged();
    std::uint32_t author, sequence;
    std::memcpy(&author, payload.data(), 4);
    std::memcpy(&sequence, payload.data() + 4, 4);
    const auto kind = std::to_integer<std::uint8_t>(payload[8]);
    const store::Table::Ticket ticket = std::uint64_t(author) << 32 | sequence;
    if (kind == kArrival) return {};
    if (kind == kWithdrawal) {
      table_.withdraw(ticket);
      return {};
    }
    auto request = store::wire::parse_request({.kind = kind, .body = payload.subspan(kPrefix)});
    if (!request.ok()) return damaged();
    apply(ticket, *std::move(request));
    return {};
  };
  return log_->read_new(apply_one);
}

// Writes the request and applies it. With the exclusive lock held, caught up.
Result<store::Table::Ticket> FileStore::record(const store::Request& request) {
  const store::Table::Ticket ticket = new_ticket();
  TUTTI_TRY(log_->append(payload_of(ticket, std::uint8_t(request.op), store::wire::body_of(request))));
  apply(ticket, request);
  return ticket;
}

void FileStore::apply(store::Table::Ticket ticket, store::Request request) {
  std::vector<store::Table::Answer> answers;
  table_.submit(ticket, std::move(request), answers);
  for (auto& answer : answers)
    for (const store::Table::Ticket t : answer.tickets)
      if (std::uint32_t(t >> 32) == author_) answers_[t] = answer.reply;
}

std::optional<store::Reply> FileStore::take_answer(store::Table::Ticket ticket) {
  const auto found = answers_.extract(ticket);
  return found.empty() ? std::nullopt : std::optional<store::Reply>(std::move(found.mapped()));
}

}  // namespace tutti
