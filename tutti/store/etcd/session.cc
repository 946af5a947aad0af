// Exactly once. Each handle has a *mark*, a key of its own that counts its changes. Every transaction demands that the
// mark stands where this handle left it, and moves it on by one. If the answer is lost the gateway sends the same
// transaction again: had the first been carried out, the mark has moved and the second changes nothing, but its failure
// branch reads the mark and so tells what happened. (libcurl sends again by itself when a kept connection turns out to
// be closed, so this may happen without our having seen a loss.)
#include "tutti/store/etcd/session.h"

#include "tutti/transport/crypto.h"

namespace tutti::etcd {
namespace {

constexpr std::size_t kIdBytes = 12;

std::string random_id() {
  std::byte bytes[kIdBytes];
  crypto::fill_random(bytes);
  std::string text;
  for (const std::byte b : bytes) {
    text += "0123456789abcdef"[std::to_integer<int>(b >> 4)];
    text += "0123456789abcdef"[std::to_integer<int>(b & std::byte(15))];
  }
  return text;
}

std::string hex8(std::size_t number) {
  std::string text(8, '0');
  for (std::size_t i = 8; i-- > 0; number /= 16) text[i] = "0123456789abcdef"[number % 16];
  return text;
}

}  // namespace

Result<std::unique_ptr<Session>> Session::open(const EtcdOptions& options, Deadline deadline) {
  auto lease = TUTTI_TRY(Lease::hold(options, deadline));
  auto gateway = TUTTI_TRY(Gateway::create(options));
  return std::unique_ptr<Session>(new Session(options, std::move(gateway), std::move(lease)));
}

Result<std::unique_ptr<Session>> Session::twin(Deadline) const {
  return std::unique_ptr<Session>(new Session(options_, TUTTI_TRY(Gateway::create(options_)), lease_));
}

Session::Session(EtcdOptions options, std::unique_ptr<Gateway> gateway, std::shared_ptr<Lease> lease)
    : options_(std::move(options)), gateway_(std::move(gateway)), lease_(std::move(lease)), id_(random_id()) {}

std::string Session::name(Kind kind, const std::string& key) const { return all_of(kind) + hex8(key.size()) + key; }

Result<Session::Outcome> Session::change(Transaction transaction, Deadline deadline) {
  const std::string mark = options_.prefix + "c/" + id_;
  if (changes_ == 0)
    transaction.compare.push_back({Compare::What::kAbsent, mark});
  else
    transaction.compare.push_back({.what = Compare::What::kValue, .key = mark, .value = std::to_string(changes_)});
  transaction.success.push_back(Put{mark, std::to_string(changes_ + 1)});
  transaction.failure.push_back(Range{.key = mark});
  TransactionAnswer answer = TUTTI_TRY(gateway_->transact(transaction, lease_->id(), deadline));
  Outcome outcome{.made = answer.succeeded, .answer_lost = false, .answer = std::move(answer)};
  if (!outcome.made && !outcome.answer.ranges.empty()) {
    const RangeAnswer held = std::move(outcome.answer.ranges.back());
    outcome.answer.ranges.pop_back();
    if (!held.items.empty() && held.items[0].value == std::to_string(changes_ + 1))
      outcome = {.made = true, .answer_lost = true, .answer = {}};
  }
  if (outcome.made) ++changes_;
  return outcome;
}

}  // namespace tutti::etcd
