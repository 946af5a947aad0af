// barrier and gather_all. A barrier is a *head*, one key that holds operation, size and a random *epoch*, and an
// *entry* of each rank below that epoch. Every entry and every withdrawal also writes the head, so the head's revision
// is that of the whole barrier: "nothing has changed since I counted" is one comparison.
//
// A rank that enters counts the entries in the same transaction. The rank that counts `size` is the last, and *closes*:
// one transaction reads the entries and deletes them with the head, provided that no rank withdrew meanwhile. The other
// ranks wait for the head's deletion, and read the entries as they stood one revision before it, for etcd keeps
// history. The key is free again at once, and the next barrier has another epoch. If the last rank dies between
// counting and closing, the next rank that checks (all do, every few seconds) closes in its place.
#include <set>

#include "tutti/base/text.h"
#include "tutti/store/etcd/session.h"

namespace tutti::etcd {
namespace {

constexpr Duration kBarrierGrace = std::chrono::seconds(2);  // beyond the deadline, for etcd to carry a withdrawal out
constexpr std::size_t kRankDigits = 7;

std::string digits(int rank) {
  const std::string text = std::to_string(rank);
  return std::string(kRankDigits - text.size(), '0') + text;
}

Error mismatch(std::string detail, std::string hint) {
  return Error{.code = Code::kMismatch, .detail = std::move(detail), .hint = std::move(hint)};
}

class Entrant {
 public:
  Entrant(Session& session, const store::Request& request, Deadline deadline)
      : session_(session),
        request_(request),
        deadline_(deadline),
        calls_(Deadline::after(deadline.remaining() + kBarrierGrace)),
        head_key_(session.name(Session::Kind::kBarrier, request.keys[0])) {}

  Result<store::Reply> run(const Store::Waiting& waiting, double report_every);

 private:
  struct Head {
    store::Op op{};
    int size = 0;
    std::string epoch;
    std::int64_t created = 0, modified = 0;
  };
  struct View {  // the barrier at one moment
    std::optional<Head> head;
    std::set<int> ranks;
  };

  Result<bool> enter(bool& is_last);
  Status check(const Head& head);
  Result<std::optional<store::Reply>> close();
  Result<store::Reply> read_closed(std::int64_t revision);
  Result<std::optional<store::Reply>> withdraw();
  Result<View> read();
  store::Reply reply_of(const RangeAnswer& entries) const;
  std::string entries() const { return session_.name(Session::Kind::kEntry, request_.keys[0]) + "/" + epoch_ + "/"; }
  std::string entry() const { return entries() + digits(request_.rank); }
  std::string head_value() const {
    return std::to_string(int(request_.op)) + " " + std::to_string(request_.size) + " " + epoch_;
  }
  static std::optional<Head> parse(const RangeAnswer& range);
  int rank_in(const std::string& key) const {
    return int(parse_int(key.substr(key.size() - kRankDigits)).value_or(-1));
  }

  Session& session_;
  const store::Request& request_;
  const Deadline deadline_, calls_;
  const std::string head_key_;
  std::string epoch_;
  std::int64_t counted_ = 0;  // the revision at which it was seen last
};

std::optional<Entrant::Head> Entrant::parse(const RangeAnswer& range) {
  if (range.items.empty()) return std::nullopt;
  const auto words = split(range.items[0].value, ' ');
  if (words.size() != 3) return std::nullopt;
  return Head{store::Op(parse_int(words[0]).value_or(0)), int(parse_int(words[1]).value_or(0)), words[2],
              range.items[0].created, range.items[0].modified};
}

// Whether this is the barrier that we want to enter.
Status Entrant::check(const Head& head) {
  if (head.op == request_.op && head.size == request_.size) return {};
  std::int64_t revision = 0;
  const auto first = TUTTI_TRY(session_.gateway().range(
      {.key = entries(), .prefix = true, .limit = 1, .what = Range::What::kKeys}, revision, calls_));
  const std::string other = first.items.empty() ? "a rank" : "rank " + std::to_string(rank_in(first.items[0].key));
  if (head.op != request_.op)
    return mismatch(other + " called " + (head.op == store::Op::kBarrier ? "barrier" : "gather_all") + " with this key",
                    "all ranks must make the same calls in the same order");
  return mismatch(other + " counts " + std::to_string(head.size) + " ranks, rank " + std::to_string(request_.rank) +
                      " counts " + std::to_string(request_.size),
                  "all ranks must be given the same world size");
}

// False: the barrier changed meanwhile; try again.
Result<bool> Entrant::enter(bool& is_last) {
  std::int64_t revision = 0;
  const auto head = parse(TUTTI_TRY(session_.gateway().range({.key = head_key_}, revision, calls_)));
  epoch_ = head ? head->epoch : session_.id() + std::to_string(revision);
  if (head) TUTTI_TRY(check(*head));
  Transaction transaction;
  transaction.compare = {head ? Compare{.what = Compare::What::kCreated, .key = head_key_, .revision = head->created}
                              : Compare{Compare::What::kAbsent, head_key_},
                         {Compare::What::kAbsent, entry()}};
  transaction.success = {Put{head_key_, head_value()},
                         Put{entry(), request_.values.empty() ? std::string() : request_.values[0]},
                         Range{.key = entries(), .prefix = true, .what = Range::What::kCount}};
  transaction.failure = {Range{.key = head_key_}, Range{.key = entry()}};
  const auto outcome = TUTTI_TRY(session_.change(std::move(transaction), calls_));
  if (!outcome.made) {
    const auto& ranges = outcome.answer.ranges;
    const auto current = parse(ranges.at(0));
    if (current && head && current->created == head->created && !ranges.at(1).items.empty())
      return mismatch(
          "rank " + std::to_string(request_.rank) + " has entered already: two processes have the same rank",
          "give every process its own rank");
    return false;
  }
  counted_ = outcome.answer_lost ? revision : outcome.answer.revision;
  is_last = !outcome.answer_lost && outcome.answer.ranges.at(0).count == request_.size;
  return true;
}

store::Reply Entrant::reply_of(const RangeAnswer& entries) const {
  store::Reply reply;
  if (request_.op == store::Op::kGatherAll)
    for (const auto& item : entries.items) reply.values.push_back(item.value);  // keys are in the order of ranks
  return reply;
}

// Ends a barrier that was complete at `counted_`; none if it has changed since.
Result<std::optional<store::Reply>> Entrant::close() {
  Transaction transaction;
  transaction.compare = {{.what = Compare::What::kModified, .key = head_key_, .revision = counted_}};
  transaction.success = {Range{.key = entries(), .prefix = true}, Delete{head_key_}, Delete{entries(), true}};
  const auto outcome = TUTTI_TRY(session_.change(std::move(transaction), calls_));
  if (!outcome.made || outcome.answer_lost) return std::optional<store::Reply>();  // then its deletion tells
  return std::optional<store::Reply>(reply_of(outcome.answer.ranges.at(0)));
}

Result<store::Reply> Entrant::read_closed(std::int64_t revision) {
  std::int64_t unused = 0;
  return reply_of(TUTTI_TRY(
      session_.gateway().range({.key = entries(), .prefix = true, .revision = revision - 1}, unused, calls_)));
}

Result<Entrant::View> Entrant::read() {
  const Transaction both{
      .success = {Range{.key = head_key_}, Range{.key = entries(), .prefix = true, .what = Range::What::kKeys}}};
  const TransactionAnswer answer = TUTTI_TRY(session_.gateway().transact(both, 0, calls_));
  View view{.head = parse(answer.ranges.at(0)), .ranks = {}};
  if (view.head && view.head->epoch != epoch_) view.head.reset();
  for (const auto& item : answer.ranges.at(1).items) view.ranks.insert(rank_in(item.key));
  return view;
}

// Leaves the barrier; a reply if it was closed before that.
Result<std::optional<store::Reply>> Entrant::withdraw() {
  for (;;) {
    const View view = TUTTI_TRY(read());
    if (!view.head) break;
    Transaction transaction;
    transaction.compare = {{.what = Compare::What::kModified, .key = head_key_, .revision = view.head->modified}};
    if (view.ranks.size() == 1)
      transaction.success = {Delete{head_key_}, Delete{entry()}};
    else
      transaction.success = {Put{head_key_, head_value()}, Delete{entry()}};
    if (TUTTI_TRY(session_.change(std::move(transaction), calls_)).made) return std::optional<store::Reply>();
  }
  const auto closed = TUTTI_TRY(session_.gateway().await_change(head_key_, false, Gateway::Change::kDelete,
                                                                counted_ + 1, Deadline::after(kBarrierGrace)));
  if (!closed) return std::optional<store::Reply>();
  return std::optional<store::Reply>(TUTTI_TRY(read_closed(*closed)));
}

Result<store::Reply> Entrant::run(const Store::Waiting& waiting, double report_every) {
  bool is_last = false;
  while (!TUTTI_TRY(enter(is_last))) {
  }
  const std::int64_t entered = counted_;
  if (is_last)
    if (auto reply = TUTTI_TRY(close())) return *std::move(reply);
  for (;;) {
    const auto closed = TUTTI_TRY(session_.gateway().await_change(
        head_key_, false, Gateway::Change::kDelete, entered + 1, deadline_.at_most(from_seconds(report_every))));
    if (closed) return read_closed(*closed);
    const View view = TUTTI_TRY(read());
    if (!view.head) continue;  // closed this moment
    counted_ = view.head->modified;
    if (int(view.ranks.size()) == request_.size) {
      if (auto reply = TUTTI_TRY(close())) return *std::move(reply);
      continue;
    }
    store::Missing missing;
    for (int rank = 0; rank < request_.size; ++rank)
      if (!view.ranks.contains(rank)) missing.ranks.push_back(rank);
    if (!deadline_.expired()) {
      if (waiting) waiting(missing.ranks, deadline_.waited());
      continue;
    }
    counted_ = entered;
    if (auto reply = TUTTI_TRY(withdraw())) return *std::move(reply);
    return timeout_error(request_, missing, deadline_);
  }
}

}  // namespace

Result<store::Reply> barrier(Session& session, const store::Request& request, Deadline deadline,
                             const Store::Waiting& waiting, double report_every) {
  return Entrant(session, request, deadline).run(waiting, report_every);
}

}  // namespace tutti::etcd
