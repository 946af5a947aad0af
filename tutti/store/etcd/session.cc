// Exactly once. Each handle has a *mark*, a key of its own that counts its changes. Every transaction demands that the
// mark stands where this handle left it, and moves it on by one. If the answer is lost the gateway sends the same
// transaction again: had the first been carried out, the mark has moved and the second changes nothing, but its failure
// branch reads the mark and so tells what happened. (libcurl sends again by itself when a kept connection turns out to
// be closed, so this may happen without our having seen a loss.)
#include "tutti/store/etcd/session.h"

#include <pthread.h>

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/base/thread.h"
#include "tutti/transport/crypto.h"

namespace tutti::etcd {
namespace {

constexpr std::size_t kIdBytes = 12;

std::string random_id() {
  std::byte bytes[kIdBytes];
  crypto::fill_random(bytes);
  return crypto::to_hex(bytes);
}

std::string hex8(std::size_t number) {
  std::string text(8, '0');
  for (std::size_t i = 8; i-- > 0; number /= 16) text[i] = "0123456789abcdef"[number % 16];
  return text;
}

constexpr int kRenewalsPerLease = 4;

}  // namespace

Result<std::unique_ptr<Session>> Session::open(const EtcdOptions& options, Deadline deadline) {
  auto lease = TUTTI_TRY(Lease::hold(options, deadline));
  auto gateway = TUTTI_TRY(Gateway::create(options));
  return std::unique_ptr<Session>(new Session(options, std::move(gateway), std::move(lease)));
}

Result<std::unique_ptr<Session>> Session::clone() const {
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

// ---- the lease ----
//
// The first process makes the lease and stores its number under the key "lease", which is attached to the lease itself:
// so the key goes with the job, and the next job of this name makes its own. Two processes that start at once agree by
// a transaction.

Result<std::shared_ptr<Lease>> Lease::hold(const EtcdOptions& options, Deadline deadline) {
  auto gateway = TUTTI_TRY(Gateway::create(options));
  const std::string key = options.prefix + "lease";
  const auto start = [](std::int64_t id, std::unique_ptr<Gateway> by, Duration length) {
    return as_result([&] { return std::shared_ptr<Lease>(new Lease(id, std::move(by), length)); });
  };
  while (!deadline.expired()) {
    std::int64_t revision = 0;
    const auto held = TUTTI_TRY(gateway->range({.key = key}, revision, deadline));
    if (!held.items.empty()) {
      const std::int64_t id = parse_int(held.items[0].value).value_or(0);
      if (TUTTI_TRY(gateway->keep_alive(id, deadline)) > 0) return start(id, std::move(gateway), options.lease);
      continue;  // it has just ended, and its key with it
    }
    const std::int64_t mine = TUTTI_TRY(gateway->grant(options.lease, deadline));
    const Transaction claim{.compare = {{Compare::What::kAbsent, key}}, .success = {Put{key, std::to_string(mine)}}};
    if (TUTTI_TRY(gateway->transact(claim, mine, deadline)).succeeded)
      return start(mine, std::move(gateway), options.lease);
    // Another process was faster, or the answer to our first attempt was lost: look which lease there is.
  }
  return deadline.error("the lease of the job in etcd at " + gateway->endpoints_text() +
                        " expires before it can be used");
}

Status Lease::end(const EtcdOptions& options, Deadline deadline) {
  const auto gateway = TUTTI_TRY(Gateway::create(options));
  std::int64_t revision = 0;
  const auto held = TUTTI_TRY(gateway->range({.key = options.prefix + "lease"}, revision, deadline));
  if (held.items.empty()) return {};
  return gateway->revoke(parse_int(held.items[0].value).value_or(0), deadline);
}

Lease::Lease(std::int64_t id, std::unique_ptr<Gateway> gateway, Duration length)
    : id_(id), gateway_(std::move(gateway)), length_(length) {
  thread_ = start_thread([this] { keep(); }).or_throw();
  pthread_setname_np(thread_.native_handle(), "tutti-lease");
}

Lease::~Lease() {
  {
    const MutexLock lock(mutex_);
    end_ = true;
  }
  ended_.notify_one();
  thread_.join();
}

void Lease::keep() {
  const Duration pause = length_ / kRenewalsPerLease;
  bool warned = false;
  for (;;) {
    {
      MutexLock lock(mutex_);
      const auto until = now() + pause;
      while (!end_ && now() < until) ended_.wait_until(lock, until);
      if (end_) return;
    }
    const auto seconds = gateway_->keep_alive(id_, Deadline::after(pause));
    if (!seconds.ok() && !warned) log::warn("the job's lease in etcd was not renewed: " + to_string(seconds.error()));
    warned = !seconds.ok();
    if (!seconds.ok() || *seconds > 0) continue;
    log::error("etcd has forgotten this job: its lease was not kept alive for " + seconds_text(to_seconds(length_)));
    return;
  }
}

}  // namespace tutti::etcd
