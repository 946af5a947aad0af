#include "tutti/comm/group/diagnosis.h"

#include <algorithm>

#include "tutti/base/log.h"
#include "tutti/base/text.h"

namespace tutti::comm {
namespace {

constexpr const char* kCallKey = "call";
constexpr const char* kWaitsKey = "waits";

}  // namespace

std::string awaited_text(const Request& request, const comm::Blockers& blockers) {
  if (blockers.ranks.empty())
    return blockers.on_device ? detail::words("earlier work on the stream of cuda:", request.device) : "its peers";
  std::vector<int> ranks = blockers.ranks;
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks_words(ranks);
}

Diagnosis::Diagnosis(const GroupSpec& spec, const Peers& peers, Store* store, std::function<void()> mismatch_found,
                     Duration patience)
    : spec_(spec), peers_(peers), store_(store), mismatch_found_(std::move(mismatch_found)), patience_(patience) {}

void Diagnosis::warn(std::string text) {
  if (!warnings_.run([this, text] { log::warn(text + peers_.stopped_text()); }).ok()) log::warn(text);
}

void Diagnosis::compare(Call call) {
  if (!store_ || unreachable_.load(std::memory_order_relaxed) == call.sequence) return;
  if (is_comparing_.exchange(true, std::memory_order_acquire)) return;
  const Status started = comparisons_.run([this, call = std::move(call)] {
    compare_with_peers(call);
    is_comparing_.store(false, std::memory_order_release);
  });
  if (!started.ok()) is_comparing_.store(false, std::memory_order_release);
}

void Diagnosis::compare_with_peers(const Call& call) {
  const auto deadline = Deadline::after(patience_);
  const auto give_up = [&] { unreachable_.store(call.sequence, std::memory_order_relaxed); };
  if (announced_ != call.sequence) {
    announced_ = call.sequence;
    if (!store_->set(peers_.store_key(kCallKey, spec_.rank), call.signature + "\n" + call.text).ok()) give_up();
  }
  const std::string same_turn = std::to_string(call.sequence) + " ";
  for (const int peer : call.awaited) {
    if (deadline.expired()) return;
    const std::string key = peers_.store_key(kCallKey, peer);
    const auto exists = store_->check({key});
    if (!exists.ok()) give_up();
    if (!exists.ok() || !*exists) continue;
    const auto theirs = store_->get(key, deadline);
    if (!theirs.ok()) continue;
    const std::size_t line = theirs->find('\n');
    if (!theirs->starts_with(same_turn) || line == std::string::npos || theirs->substr(0, line) == call.signature)
      continue;
    {
      MutexLock lock(mutex_);
      mismatched_ = call.sequence;
      mismatch_ = Error{.code = Code::kMismatch,
                        .detail = "called " + theirs->substr(line + 1) + " while this rank called " + call.text,
                        .hint = "all ranks of a group must make the same calls in the same order",
                        .peer = peer};
    }
    has_mismatch_.store(true, std::memory_order_release);
    return mismatch_found_();
  }
}

std::optional<Error> Diagnosis::mismatch(std::uint64_t sequence) const {
  if (!has_mismatch_.load(std::memory_order_acquire)) return {};
  MutexLock lock(mutex_);
  return mismatched_ == sequence ? std::optional(mismatch_) : std::nullopt;
}

void Diagnosis::announce_end(const std::string& operation) {
  if (store_) (void)store_->set(peers_.store_key(kWaitsKey, spec_.rank), operation);
}

void Diagnosis::add_silent(Error& error) const {
  if (!store_) return;
  const auto deadline = Deadline::after(patience_);
  std::vector<std::string> keys;
  for (int r = 0; r < spec_.size(); ++r) keys.push_back(peers_.store_key(kWaitsKey, r));
  if (store_->wait(keys, deadline.at_most(patience_ / 2)).ok()) return;
  std::vector<int> silent;
  for (int r = 0; r < spec_.size() && !deadline.expired(); ++r)
    if (const auto exists = store_->check({keys[std::size_t(r)]}); exists.ok() && !*exists) silent.push_back(r);
  if (!silent.empty())
    error.detail += "; " + ranks_words(silent) + (silent.size() == 1 ? " gives" : " give") + " no answer";
}

void Diagnosis::add_stopped(Error& error) const {
  const std::string stopped = peers_.stopped_text();
  error.detail += stopped;
  if (error.limit < 0) return;  // a call that ended since its rank leaves has another hint
  error.hint = (stopped.empty() ? "do all ranks make the same calls in the same order? "
                                : "kill -CONT resumes a stopped process; ") +
               error.hint;
}

}  // namespace tutti::comm
