// Who hangs is seldom who is to blame: a rank that is stopped, or caught in a loop, lets all others wait in a call that
// it never comes to. So the one to look for is the one that has not come; of several, the one that is in no call at
// all, because who waits in another call may be a victim itself.
#include "tutti/launch/monitor/hang.h"

#include <algorithm>
#include <map>

#include "tutti/base/text.h"

namespace tutti {
namespace {

const ProgressCall* under_way(const RankSeen& seen, const ProgressGroup** of = nullptr) {
  const ProgressCall* const call = seen.progress.current(of);
  return call && !call->is_over() ? call : nullptr;
}

// The call in which ranks wait, and who has not come to it.
struct CallMeeting {
  std::string call;
  std::uint64_t sequence = 0;
  std::vector<int> waiting, late;
};

std::vector<CallMeeting> meetings_of(const std::vector<RankSeen>& ranks, DescribeCall describe) {
  std::map<std::uint64_t, CallMeeting> by_group;
  for (const RankSeen& seen : ranks) {
    const ProgressGroup* group = nullptr;
    const ProgressCall* const call = under_way(seen, &group);
    if (!call || call->exchange) continue;
    CallMeeting& meeting = by_group[group->id];
    if (call->sequence > meeting.sequence) {
      meeting.sequence = call->sequence;
      meeting.call = call_words(*call, *group, describe);
    }
  }
  std::vector<CallMeeting> meetings;
  for (auto& [id, meeting] : by_group) {
    for (const RankSeen& seen : ranks) {
      for (const ProgressGroup& group : seen.progress.groups) {
        if (group.id != id || group.left) continue;
        (group.calls < meeting.sequence ? meeting.late : meeting.waiting).push_back(seen.rank);
      }
    }
    meetings.push_back(std::move(meeting));
  }
  return meetings;
}

std::string waits(const std::vector<int>& ranks) {
  return ranks_words(ranks) + (ranks.size() == 1 ? " waits" : " wait");
}

}  // namespace

void HangLimit::learn(Duration gap, std::uint64_t steps) {
  steps_ = std::max(steps_, steps);
  if (steps_ > 1) longest_ = std::max(longest_, gap);  // what lies before the first step is a start, not a step
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

std::string HangLimit::words() const {
  if (given_) return "as --hang-timeout has it";
  return "learned: the ranks got on every " + seconds_text(to_seconds(longest_)) + " or sooner";
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
    cause.words =
        ranks_words(suspended) + (suspended.size() == 1 ? " is" : " are") + " stopped (SIGSTOP or a debugger)";
    return cause;
  }
  const auto doing = [&](int rank) {
    const auto seen = std::find_if(ranks.begin(), ranks.end(), [&](const RankSeen& s) { return s.rank == rank; });
    return doing_words(seen->progress, describe);
  };
  const std::vector<CallMeeting> meetings = meetings_of(ranks, describe);
  const CallMeeting* first = nullptr;  // whose late ones are in no call
  for (const CallMeeting& meeting : meetings) {
    for (const int rank : meeting.late) {
      if (std::find(idle.begin(), idle.end(), rank) == idle.end()) continue;
      cause.blamed.push_back(rank);
      if (!first) first = &meeting;
    }
  }
  std::sort(cause.blamed.begin(), cause.blamed.end());
  cause.blamed.erase(std::unique(cause.blamed.begin(), cause.blamed.end()), cause.blamed.end());
  if (first) {
    cause.words = waits(first->waiting) + " in " + first->call + " for " + ranks_words(cause.blamed) + ": " +
                  doing(cause.blamed.front());
    return cause;
  }
  for (const CallMeeting& meeting : meetings) {
    if (meeting.late.empty()) continue;
    // Everybody waits, for one another: the calls come in another order, or one is missing.
    cause.blamed = meeting.late;
    cause.words = waits(meeting.waiting) + " in " + meeting.call + ", to which " + ranks_words(meeting.late) +
                  (meeting.late.size() == 1 ? " has" : " have") + " not come, but " +
                  (meeting.late.size() == 1 ? "waits" : "wait") + " elsewhere: " + doing(meeting.late.front());
    return cause;
  }
  if (!meetings.empty()) {
    cause.words = waits(waiting) + " in " + meetings.front().call + " for ranks of other nodes";
    return cause;
  }
  if (!waiting.empty()) {
    cause.words = ranks_words(waiting) + ": " + doing(waiting.front());
    return cause;
  }
  cause.blamed = idle;
  cause.words = "no rank is in a call, the program itself stands still: " + ranks_words(idle) +
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

}  // namespace tutti
