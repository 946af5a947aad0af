// Whoever comes first makes the lease and tells its number under the key "lease", which hangs on the lease itself: so
// it goes with the job, and the next job of this name makes its own. Two that come first agree by a transaction.
#include "tutti/store/etcd/session.h"

#include <pthread.h>

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/base/thread.h"

namespace tutti::etcd {
namespace {

constexpr int kBeatsPerLease = 4;

}  // namespace

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
    // Another was faster, or the answer to our first attempt was lost: look who holds it.
  }
  return deadline.error("the lease of the job in etcd at " + gateway->endpoints_text() +
                        " ends whenever it is looked at");
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
  const Duration beat = length_ / kBeatsPerLease;
  bool told = false;
  for (;;) {
    {
      MutexLock lock(mutex_);
      const auto until = now() + beat;
      while (!end_ && now() < until) ended_.wait_until(lock, until);
      if (end_) return;
    }
    const auto seconds = gateway_->keep_alive(id_, Deadline::after(beat));
    if (!seconds.ok() && !told) log::warn("the job's lease in etcd was not renewed: " + to_string(seconds.error()));
    told = !seconds.ok();
    if (!seconds.ok() || *seconds > 0) continue;
    log::error("etcd has forgotten this job: nobody kept its lease alive for " + seconds_text(to_seconds(length_)));
    return;
  }
}

}  // namespace tutti::etcd
