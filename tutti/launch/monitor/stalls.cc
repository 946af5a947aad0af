// The rank that hangs is seldom the rank to blame: one that is stopped, or caught in a loop, lets all others wait in a
// call that it never reaches. So the one to look for is the one that has not come. Of several it is the one in no call
// at all, because a rank that waits in another call may be a victim itself.
//
// One rank that computes while all others wait for it, at nearly every observation, makes the step long. The processor
// time says half of why. A rank that computes all the time has more to do than the others, or a slower core. One that
// does not waits itself: for its data, or for a core that a quota or another program holds.
#include "tutti/launch/monitor/stalls.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "tutti/base/text.h"

namespace tutti::launch {
namespace {

const trace::ProgressCall* under_way(const RankSeen& seen, const trace::ProgressGroup** of = nullptr) {
  const trace::ProgressCall* const call = seen.progress.current(of);
  return call && !call->is_over() ? call : nullptr;
}

// A call in which ranks wait, and the ranks that have not come to it.
struct PendingCall {
  std::string call;
  std::uint64_t sequence = 0;
  std::vector<int> waiting, late;
};

std::vector<PendingCall> pending_calls(const std::vector<RankSeen>& ranks, DescribeCall describe) {
  std::map<std::uint64_t, PendingCall> by_group;
  for (const RankSeen& seen : ranks) {
    const trace::ProgressGroup* group = nullptr;
    const trace::ProgressCall* const call = under_way(seen, &group);
    if (!call || call->exchange) continue;
    PendingCall& pending = by_group[group->id];
    if (call->sequence > pending.sequence) {
      pending.sequence = call->sequence;
      pending.call = call_text(*call, *group, describe);
    }
  }
  std::vector<PendingCall> calls;
  for (auto& [id, pending] : by_group) {
    for (const RankSeen& seen : ranks) {
      for (const trace::ProgressGroup& group : seen.progress.groups) {
        if (group.id != id || group.left) continue;
        (group.calls < pending.sequence ? pending.late : pending.waiting).push_back(seen.rank);
      }
    }
    calls.push_back(std::move(pending));
  }
  return calls;
}

std::string waiting_text(const std::vector<int>& ranks) {
  return ranks_words(ranks) + (ranks.size() == 1 ? " waits" : " wait");
}

constexpr int kRecent = 20;  // observations that waits() averages over, approximately
constexpr double kBusy = 0.7;

}  // namespace

std::string call_text(const trace::ProgressCall& call, const trace::ProgressGroup& group, DescribeCall describe) {
  trace::FlightOperation operation;
  if (describe) describe(call.call, operation);
  // "all_reduce (f32[4], sum)": the number goes after the verb.
  const std::string& words = operation.call;
  const auto space = words.find(' ');
  const std::string verb = words.empty() ? call.exchange ? "exchange" : "collective" : words.substr(0, space);
  const std::string rest = space == std::string::npos ? "" : words.substr(space);
  return verb + " #" + std::to_string(call.sequence) + rest + " on group " + group.name;
}

double seconds_in_state(const trace::RankProgress& rank) {
  const trace::ProgressCall* const call = rank.current();
  std::int64_t since = rank.step_began;
  if (call && !call->is_over()) {
    since = call->began();
  } else if (call) {
    since = std::max(since, std::max(call->ended, call->began()));
  }
  return since == 0 ? -1 : std::max(0.0, double(rank.read_at - since) * 1e-9);
}

std::string state_text(const trace::RankProgress& rank, DescribeCall describe) {
  if (rank.pid == 0) return {};
  if (!rank.joined) return "in tutti::init()";
  const trace::ProgressGroup* group = nullptr;
  const trace::ProgressCall* const call = rank.current(&group);
  return call && !call->is_over() ? call_text(*call, *group, describe) : "computes";
}

std::string activity_text(const trace::RankProgress& rank, DescribeCall describe) {
  if (rank.pid == 0) return {};
  if (!rank.joined) return "in tutti::init()";
  const std::string step = rank.steps ? "step " + std::to_string(rank.step) + ", " : "";
  const trace::ProgressGroup* group = nullptr;
  const trace::ProgressCall* const call = rank.current(&group);
  const double seconds = seconds_in_state(rank);
  if (!call) {
    if (!rank.steps) return "in no call";
    return step + "for " + seconds_text(seconds);
  }
  const std::string words = call_text(*call, *group, describe);
  if (!call->is_over()) return step + (seconds < 0 ? "in " : "for " + seconds_text(seconds) + " in ") + words;
  return step + "in no call" + (seconds < 0 ? "" : " for " + seconds_text(seconds)) + "; its last call was " + words +
         (call->state == trace::FlightState::kFailed ? ", which failed" : "");
}

void HangLimit::learn(Duration gap, std::uint64_t steps) {
  steps_ = std::max(steps_, steps);
  if (steps_ > 1) longest_ = std::max(longest_, gap);  // the time before the first step is the start-up
}

std::optional<Duration> HangLimit::limit() const {
  if (given_) return given_->count() > 0 ? given_ : std::nullopt;
  if (steps_ < kSteps) return {};
  return std::max(kLeast, longest_ * kFactor);
}

std::optional<Duration> HangLimit::warning() const {
  if (given_) return given_->count() > 0 ? std::optional<Duration>(*given_ / 2) : std::nullopt;
  if (steps_ < kSteps) return {};
  return std::max(kLeastForWarning, longest_ * kFactorForWarning);
}

std::string HangLimit::text() const {
  if (given_) return "set by --hang-timeout";
  return "learned: the ranks made progress every " + seconds_text(to_seconds(longest_)) + " or sooner";
}

HangCause explain_hang(const std::vector<RankSeen>& ranks, DescribeCall describe) {
  HangCause cause;
  std::vector<int> suspended, idle, waiting;
  for (const RankSeen& seen : ranks) {
    if (seen.suspended) suspended.push_back(seen.rank);
    (under_way(seen) ? waiting : idle).push_back(seen.rank);
  }
  if (!suspended.empty()) {
    cause.blamed = suspended;
    cause.text = ranks_words(suspended) + (suspended.size() == 1 ? " is" : " are") + " stopped (SIGSTOP or a debugger)";
    return cause;
  }
  const auto doing = [&](int rank) {
    const auto seen = std::find_if(ranks.begin(), ranks.end(), [&](const RankSeen& s) { return s.rank == rank; });
    return activity_text(seen->progress, describe);
  };
  const std::vector<PendingCall> calls = pending_calls(ranks, describe);
  const PendingCall* first = nullptr;  // the first whose late ranks are in no call
  for (const PendingCall& pending : calls) {
    for (const int rank : pending.late) {
      if (std::find(idle.begin(), idle.end(), rank) == idle.end()) continue;
      cause.blamed.push_back(rank);
      if (!first) first = &pending;
    }
  }
  std::sort(cause.blamed.begin(), cause.blamed.end());
  cause.blamed.erase(std::unique(cause.blamed.begin(), cause.blamed.end()), cause.blamed.end());
  if (first) {
    cause.text = waiting_text(first->waiting) + " in " + first->call + " for " + ranks_words(cause.blamed) + ": " +
                 doing(cause.blamed.front());
    return cause;
  }
  for (const PendingCall& pending : calls) {
    if (pending.late.empty()) continue;
    // All ranks wait for one another: their calls are in different orders, or one is missing.
    cause.blamed = pending.late;
    cause.text = waiting_text(pending.waiting) + " in " + pending.call + ", which " + ranks_words(pending.late) +
                 (pending.late.size() == 1 ? " has" : " have") + " not joined, but " +
                 (pending.late.size() == 1 ? "waits" : "wait") + " elsewhere: " + doing(pending.late.front());
    return cause;
  }
  if (!calls.empty()) {
    cause.text = waiting_text(waiting) + " in " + calls.front().call + " for ranks of other nodes";
    return cause;
  }
  if (!waiting.empty()) {
    cause.text = ranks_words(waiting) + ": " + doing(waiting.front());
    return cause;
  }
  cause.blamed = idle;
  cause.text = "no rank is in a call, the program itself makes no progress: " + ranks_words(idle) +
               (idle.size() == 1 ? " is" : " are") + " at: " + (idle.empty() ? "" : doing(idle.front()));
  return cause;
}

std::optional<int> awaited_rank(const std::vector<RankSeen>& ranks) {
  std::optional<int> found;
  for (const RankSeen& seen : ranks) {
    if (!seen.progress.joined || !seen.progress.recorded) return {};
    if (under_way(seen)) continue;
    if (found) return {};
    found = seen.rank;
  }
  return ranks.size() > 1 ? found : std::nullopt;
}

std::string straggler_text(const Straggler& straggler) {
  const double share = straggler.seconds > 0 ? straggler.processor / straggler.seconds : 0;
  return "rank " + std::to_string(straggler.rank) + " (pid " + std::to_string(straggler.pid) + ") is slow: in " +
         std::to_string(straggler.checks) + " of " + std::to_string(Stragglers::kChecks) + " checks (" +
         seconds_text(straggler.seconds) + ") all other ranks of this node waited for it; it used " +
         std::to_string(std::lround(100 * share)) + " % of a core meanwhile" +
         (share < kBusy
              ? ", so it waits too: for its data, or for a core that a quota (cpu.max) or another program holds"
              : ": it has more to compute than the others, or a slower core; `perf top -p " +
                    std::to_string(straggler.pid) + "` shows it");
}

std::optional<Straggler> Stragglers::check(const std::vector<RankSeen>& ranks, bool standing) {
  const auto awaited = awaited_rank(ranks);
  for (const RankSeen& seen : ranks) {
    const bool is_new = !ranks_.count(seen.rank);
    Counted& counted = ranks_[seen.rank];
    if (checks_ == 0 || is_new) {
      counted.began = seen.progress.read_at;
      counted.processor_then = seen.processor;
    }
    const trace::ProgressCall* const call = seen.progress.current();
    const bool in_call = call && !call->is_over();
    counted.checks = std::min(counted.checks + 1, kRecent);
    counted.waits += ((in_call ? 1 : 0) - counted.waits) / counted.checks;
    if (awaited == seen.rank) ++counted.awaited;
  }
  if (++checks_ < kChecks) return {};
  std::optional<Straggler> found;
  for (const RankSeen& seen : ranks) {
    Counted& counted = ranks_[seen.rank];
    if (counted.awaited >= int(kPart * kChecks) && !counted.reported && !standing) {
      counted.reported = true;
      found = Straggler{.rank = seen.rank,
                        .pid = seen.progress.pid,
                        .checks = counted.awaited,
                        .seconds = double(seen.progress.read_at - counted.began) * 1e-9,
                        .processor = seen.processor - counted.processor_then};
    }
    counted.awaited = 0;
  }
  checks_ = 0;
  return found;
}

double Stragglers::waits(int rank) const {
  const auto counted = ranks_.find(rank);
  return counted == ranks_.end() || counted->second.checks < kRecent / 2 ? -1 : counted->second.waits;
}

}  // namespace tutti::launch
