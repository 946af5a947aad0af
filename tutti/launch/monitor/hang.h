#pragma once
// When do the ranks of a node hang, and who is the one that the others wait for? Pure functions of what was seen.
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/launch/monitor/rank_words.h"

namespace tutti {

// How long no rank may get on. Given by the user, or learned: as long as nobody has told a step, there is no limit;
// then a multiple of the longest time that lay between two signs of progress, and never less than some minutes, for
// the evaluation at the end of an epoch and for checkpoints.
class HangLimit {
 public:
  static constexpr Duration kLeast = std::chrono::minutes(5), kLeastForWarning = std::chrono::seconds(30);
  static constexpr int kFactor = 20, kFactorForWarning = 10;
  static constexpr int kSteps = 3;  // before that nothing is known

  // 0: never a hang.
  explicit HangLimit(std::optional<Duration> given) : given_(given) {}

  // Some rank got on, `gap` after the last time that one did; it told `steps` in all.
  void learn(Duration gap, std::uint64_t steps);
  std::optional<Duration> limit() const;    // the job ends
  std::optional<Duration> warning() const;  // a line is said
  // "as --hang-timeout has it", "learned: the ranks got on every 2.1 s or sooner"
  std::string words() const;

 private:
  std::optional<Duration> given_;
  Duration longest_{};
  std::uint64_t steps_ = 0;
};

// A rank as it was found.
struct RankSeen {
  int rank = 0;
  RankProgress progress;
  bool suspended = false;
  bool alive = true;
  double processor = 0;  // seconds of processor time, so far
};

struct HangCause {
  std::vector<int> blamed;  // ranks that the others wait for; empty: none of this node
  std::string words;        // "ranks 0, 1, 3 wait in all_reduce #42 (...) on group dp for rank 2, which ..."
};
HangCause explain_hang(const std::vector<RankSeen>& ranks, DescribeCall describe);

// The one rank that all others wait for at this moment, while it computes; none: there is no such rank.
std::optional<int> awaited_rank(const std::vector<RankSeen>& ranks);

}  // namespace tutti
