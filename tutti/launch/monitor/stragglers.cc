// One rank that computes while all others wait for it, at nearly every look, is the one that makes a step long. Why it
// is slow the processor time tells by halves: a rank that computes all the time has more to do than the others or a
// slower core; one that does not waits itself, for its data, or for a core that a quota or another program holds.
#include "tutti/launch/monitor/stragglers.h"

#include <algorithm>
#include <cmath>

#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr int kRecent = 20;  // looks that waits() is of, more or less
constexpr double kBusy = 0.7;

}  // namespace

std::string slow_words(const Straggler& slow) {
  const double share = slow.seconds > 0 ? slow.processor / slow.seconds : 0;
  return "rank " + std::to_string(slow.rank) + " (pid " + std::to_string(slow.pid) + ") is slow: in " +
         std::to_string(slow.looks) + " of " + std::to_string(Stragglers::kLooks) + " looks at it (" +
         seconds_text(slow.seconds) + ") all other ranks of this node waited for it; it used " +
         std::to_string(std::lround(100 * share)) + " % of a core meanwhile" +
         (share < kBusy
              ? ", so it waits too: for its data, or for a core that a quota (cpu.max) or another program holds"
              : ": it has more to compute than the others, or a slower core; `perf top -p " + std::to_string(slow.pid) +
                    "` says what");
}

std::optional<Straggler> Stragglers::look(const std::vector<RankSeen>& ranks, bool standing) {
  const auto awaited = awaited_rank(ranks);
  for (const RankSeen& seen : ranks) {
    const bool is_new = !ranks_.count(seen.rank);
    Counted& counted = ranks_[seen.rank];
    if (looks_ == 0 || is_new) {
      counted.began = seen.progress.read_at;
      counted.processor_then = seen.processor;
    }
    const ProgressCall* const call = seen.progress.current();
    const bool in_call = call && !call->is_over();
    counted.looks = std::min(counted.looks + 1, kRecent);
    counted.waits += ((in_call ? 1 : 0) - counted.waits) / counted.looks;
    if (awaited == seen.rank) ++counted.awaited;
  }
  if (++looks_ < kLooks) return {};
  std::optional<Straggler> found;
  for (const RankSeen& seen : ranks) {
    Counted& counted = ranks_[seen.rank];
    if (counted.awaited >= int(kPart * kLooks) && !counted.told && !standing) {
      counted.told = true;
      found = Straggler{.rank = seen.rank,
                        .pid = seen.progress.pid,
                        .looks = counted.awaited,
                        .seconds = double(seen.progress.read_at - counted.began) * 1e-9,
                        .processor = seen.processor - counted.processor_then};
    }
    counted.awaited = 0;
  }
  looks_ = 0;
  return found;
}

double Stragglers::waits(int rank) const {
  const auto counted = ranks_.find(rank);
  return counted == ranks_.end() || counted->second.looks < kRecent / 2 ? -1 : counted->second.waits;
}

}  // namespace tutti
