// The verbs of a Store in etcd's terms. A value is a key; reading, comparing and writing it is one transaction, tried
// again when another process was faster (add, append). A call that waits reads, and then *watches* the first key that
// it lacks from the very next revision on, so that it misses nothing in between and does not poll. A queue is a folder
// of keys with random names, whose order is that of their creation: a push need not know what else is there.
#include "tutti/store/etcd/etcd_store.h"

#include <set>

#include "tutti/base/mutex.h"
#include "tutti/base/text.h"
#include "tutti/store/etcd/session.h"
#include "tutti/store/request.h"
#include "tutti/store/store.h"

namespace tutti {
namespace etcd {
namespace {

using WaitKind = Session::Kind;

constexpr Duration kGrace = std::chrono::seconds(2);    // beyond a wait's deadline, for its last look
constexpr std::size_t kOperationsPerTransaction = 100;  // etcd's default limit is 128 (--max-txn-ops)
constexpr Duration kShortestLease = std::chrono::seconds(5);

class EtcdStore final : public Store {
 public:
  explicit EtcdStore(std::unique_ptr<Session> session) : session_(std::move(session)) {}

  Result<std::unique_ptr<Store>> clone(Deadline) override {
    auto other = std::make_unique<EtcdStore>(TUTTI_TRY(session_->clone()));
    other->set_call_timeout(call_timeout());
    return std::unique_ptr<Store>(std::move(other));
  }

 private:
  struct Values {
    std::vector<std::optional<KeyValue>> values;  // as asked
    std::int64_t revision = 0;                    // of all
  };

  Result<store::Reply> call(const store::Request& request, Deadline deadline, const Waiting& waiting) override;
  Result<store::Reply> carry_out(const store::Request& request, Deadline deadline) TUTTI_REQUIRES(mutex_);
  Result<Values> read(const std::vector<std::string>& keys, bool with_values, Deadline deadline);
  Result<store::Reply> await_all(const store::Request& request, Deadline deadline);
  Result<store::Reply> take(const store::Request& request, Deadline deadline);
  Result<store::Reply> look_for(const store::Request& request, Deadline deadline);
  Result<store::Reply> rewrite(const store::Request& request, Deadline deadline);
  Result<store::Reply> swap(const store::Request& request, Deadline deadline);
  Result<store::Reply> put_all(const store::Request& request, Deadline deadline);
  Result<store::Reply> erase(const std::string& key, Deadline deadline);
  Result<store::Reply> count_keys(Deadline deadline);
  Result<store::Reply> queue_up(const store::Request& request, Deadline deadline) TUTTI_REQUIRES(mutex_);
  Result<RangeAnswer> range(const Range& range, Deadline deadline) {
    std::int64_t revision = 0;
    return session_->gateway().range(range, revision, deadline);
  }
  std::string value_key(const std::string& key) const { return session_->name(WaitKind::kValue, key); }
  std::string queue_folder(const std::string& key) const { return session_->name(WaitKind::kQueue, key) + "/"; }

  Mutex mutex_;  // one call at a time
  std::unique_ptr<Session> session_;
  std::uint64_t pushed_ TUTTI_GUARDED_BY(mutex_) = 0;
};

Result<store::Reply> EtcdStore::call(const store::Request& request, Deadline deadline, const Waiting& waiting) {
  const MutexLock lock(mutex_);
  if (request.op == store::Op::kBarrier || request.op == store::Op::kGatherAll)
    return etcd::barrier(*session_, request, deadline, waiting, kReportEvery);
  return carry_out(request, deadline);
}

Result<store::Reply> EtcdStore::carry_out(const store::Request& request, Deadline deadline) {
  switch (request.op) {
    case store::Op::kSet:
    case store::Op::kMultiSet:
      return put_all(request, deadline);
    case store::Op::kGet:
    case store::Op::kWait:
      return await_all(request, deadline);
    case store::Op::kAdd:
    case store::Op::kAppend:
      return rewrite(request, deadline);
    case store::Op::kCompareSet:
      return swap(request, deadline);
    case store::Op::kCheck:
      return look_for(request, deadline);
    case store::Op::kRemove:
      return erase(request.keys[0], deadline);
    case store::Op::kNumKeys:
      return count_keys(deadline);
    case store::Op::kPush:
      return queue_up(request, deadline);
    case store::Op::kPop:
      return take(request, deadline);
    case store::Op::kQueueLength: {
      const Range all{.key = queue_folder(request.keys[0]), .prefix = true, .what = Range::What::kCount};
      return store::Reply{.number = TUTTI_TRY(range(all, deadline)).count};
    }
    case store::Op::kBarrier:
    case store::Op::kGatherAll:
      break;  // call() sends these to barrier()
  }
  return Error{.code = Code::kInternal, .detail = "an unknown operation"};
}

// All keys as of one moment: what does not fit one transaction is read at the revision of the first.
Result<EtcdStore::Values> EtcdStore::read(const std::vector<std::string>& keys, bool with_values, Deadline deadline) {
  Values result;
  for (std::size_t begin = 0; begin < keys.size() || result.revision == 0; begin += kOperationsPerTransaction) {
    Transaction snapshot;
    for (std::size_t i = begin; i < std::min(keys.size(), begin + kOperationsPerTransaction); ++i)
      snapshot.success.push_back(Range{.key = value_key(keys[i]),
                                       .revision = begin == 0 ? 0 : result.revision,
                                       .what = with_values ? Range::What::kAll : Range::What::kKeys});
    TransactionAnswer answer = TUTTI_TRY(session_->gateway().transact(snapshot, 0, deadline));
    if (begin == 0) result.revision = answer.revision;
    for (auto& one : answer.ranges)
      result.values.push_back(one.items.empty() ? std::nullopt : std::optional(std::move(one.items[0])));
  }
  return result;
}

Result<store::Reply> EtcdStore::await_all(const store::Request& request, Deadline deadline) {
  const Deadline calls = Deadline::after(deadline.remaining() + kGrace);
  for (;;) {
    auto [values, revision] = TUTTI_TRY(read(request.keys, request.op == store::Op::kGet, calls));
    store::Missing missing;
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!values[i]) missing.keys.push_back(request.keys[i]);
    if (missing.keys.empty()) {
      store::Reply reply;
      if (request.op == store::Op::kGet)
        for (auto& value : values) reply.values.push_back(std::move(value->value));
      return reply;
    }
    if (deadline.expired()) return timeout_error(request, missing, deadline);
    TUTTI_TRY(session_->gateway().await_change(value_key(missing.keys[0]), false, Gateway::Change::kPut, revision + 1,
                                               deadline));
  }
}

Result<store::Reply> EtcdStore::look_for(const store::Request& request, Deadline deadline) {
  const Values held = TUTTI_TRY(read(request.keys, false, deadline));
  return store::Reply{
      .flag = std::all_of(held.values.begin(), held.values.end(), [](const auto& v) { return v.has_value(); })};
}

// add and append: the new value depends on the old one.
Result<store::Reply> EtcdStore::rewrite(const store::Request& request, Deadline deadline) {
  const std::string key = value_key(request.keys[0]);
  for (;;) {
    auto held = TUTTI_TRY(range({.key = key}, deadline)).items;
    const std::string old = held.empty() ? std::string() : std::move(held[0].value);
    std::string desired;
    std::int64_t number = 0;
    if (request.op == store::Op::kAppend) {
      desired = old + request.values[0];
    } else {
      const auto counted = held.empty() ? std::optional<std::int64_t>(0) : parse_int(old);
      if (!counted)
        return Error{.code = Code::kInvalidArgument,
                     .detail = "the key holds " + std::to_string(old.size()) + " bytes that are not a decimal number"};
      if (__builtin_add_overflow(*counted, request.number, &number))
        return Error{.code = Code::kLimit, .detail = "the sum does not fit 64 bits"};
      desired = std::to_string(number);
    }
    if (desired.size() > store::kMaxValueBytes)
      return Error{.code = Code::kLimit,
                   .detail = "the value would have " + bytes_text(desired.size()) + ", at most " +
                             bytes_text(store::kMaxValueBytes) + " are allowed"};
    Transaction transaction;
    transaction.compare = {held.empty()
                               ? Compare{Compare::What::kAbsent, key}
                               : Compare{.what = Compare::What::kModified, .key = key, .revision = held[0].modified}};
    transaction.success = {Put{key, std::move(desired)}};
    if (TUTTI_TRY(session_->change(std::move(transaction), deadline)).made) return store::Reply{.number = number};
  }
}

Result<store::Reply> EtcdStore::swap(const store::Request& request, Deadline deadline) {
  const std::string key = value_key(request.keys[0]);
  Transaction transaction;
  transaction.compare = {request.values.size() == 2
                             ? Compare{.what = Compare::What::kValue, .key = key, .value = request.values[1]}
                             : Compare{Compare::What::kAbsent, key}};
  transaction.success = {Put{key, request.values[0]}};
  transaction.failure = {Range{.key = key}};
  auto outcome = TUTTI_TRY(session_->change(std::move(transaction), deadline));
  if (outcome.made) return store::Reply{.values = {request.values[0]}, .flag = true};
  store::Reply reply;
  if (auto& held = outcome.answer.ranges.at(0).items; !held.empty()) reply.values = {std::move(held[0].value)};
  return reply;
}

Result<store::Reply> EtcdStore::put_all(const store::Request& request, Deadline deadline) {
  for (std::size_t begin = 0; begin < request.keys.size(); begin += kOperationsPerTransaction) {
    Transaction transaction;
    std::set<std::string> seen;  // etcd refuses to write a key twice: of two the last counts
    for (std::size_t i = std::min(request.keys.size(), begin + kOperationsPerTransaction); i-- > begin;)
      if (seen.insert(request.keys[i]).second)
        transaction.success.push_back(Put{value_key(request.keys[i]), request.values[i]});
    TUTTI_TRY(session_->change(std::move(transaction), deadline));
  }
  return store::Reply{};
}

Result<store::Reply> EtcdStore::erase(const std::string& key, Deadline deadline) {
  Transaction transaction;
  transaction.success = {Delete{value_key(key)}, Delete{queue_folder(key), true}};
  const auto outcome = TUTTI_TRY(session_->change(std::move(transaction), deadline));
  // If the answer was lost this is unknown; that it existed is the likelier.
  return store::Reply{.flag = outcome.answer_lost || outcome.answer.deleted > 0};
}

Result<store::Reply> EtcdStore::count_keys(Deadline deadline) {
  const auto values = TUTTI_TRY(
      range({.key = session_->all_of(WaitKind::kValue), .prefix = true, .what = Range::What::kCount}, deadline));
  const auto queued = TUTTI_TRY(
      range({.key = session_->all_of(WaitKind::kQueue), .prefix = true, .what = Range::What::kKeys}, deadline));
  std::set<std::string> queues;
  for (const auto& item : queued.items) queues.insert(item.key.substr(0, item.key.rfind('/')));
  return store::Reply{.number = values.count + std::int64_t(queues.size())};
}

Result<store::Reply> EtcdStore::queue_up(const store::Request& request, Deadline deadline) {
  Transaction transaction;
  transaction.success = {
      Put{queue_folder(request.keys[0]) + session_->id() + "." + std::to_string(++pushed_), request.values[0]}};
  TUTTI_TRY(session_->change(std::move(transaction), deadline));
  return store::Reply{};
}

Result<store::Reply> EtcdStore::take(const store::Request& request, Deadline deadline) {
  const Deadline calls = Deadline::after(deadline.remaining() + kGrace);
  const std::string folder = queue_folder(request.keys[0]);
  for (;;) {
    std::int64_t revision = 0;
    auto first = TUTTI_TRY(
        session_->gateway().range({.key = folder, .prefix = true, .limit = 1, .oldest_first = true}, revision, calls));
    if (first.items.empty()) {
      if (deadline.expired()) return timeout_error(request, {.ranks = {}, .keys = request.keys}, deadline);
      TUTTI_TRY(session_->gateway().await_change(folder, true, Gateway::Change::kPut, revision + 1, deadline));
      continue;
    }
    KeyValue& item = first.items[0];
    Transaction transaction;
    transaction.compare = {{.what = Compare::What::kCreated, .key = item.key, .revision = item.created}};
    transaction.success = {Delete{item.key}};
    if (TUTTI_TRY(session_->change(std::move(transaction), calls)).made)
      return store::Reply{.values = {std::move(item.value)}};
  }
}

Status complete(EtcdOptions& options) {
  if (options.prefix.empty())
    return invalid_argument("the keys of a job in etcd need a prefix of their own", "such as /tutti/JOB");
  if (options.lease < kShortestLease)
    return Error{.code = Code::kUsage,
                 .detail = "a lease of " + seconds_text(to_seconds(options.lease)) + " was asked for in etcd",
                 .hint = "at least " + seconds_text(to_seconds(kShortestLease)) + ": a busy machine may renew it late"};
  if (!options.prefix.ends_with('/')) options.prefix += '/';
  return {};
}

}  // namespace
}  // namespace etcd

Result<std::unique_ptr<Store>> connect_etcd(EtcdOptions options, Deadline deadline) {
  TUTTI_TRY(etcd::complete(options));
  return std::unique_ptr<Store>(new etcd::EtcdStore(TUTTI_TRY(etcd::Session::open(options, deadline))));
}

Status forget_etcd_job(EtcdOptions options, Deadline deadline) {
  TUTTI_TRY(etcd::complete(options));
  return etcd::Lease::end(options, deadline);
}

}  // namespace tutti
