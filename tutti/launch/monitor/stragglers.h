#pragma once
// Which rank keeps the others waiting? Counted over looks at all ranks of a node; no clock and no system call.
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/launch/monitor/hang.h"

namespace tutti {

struct Straggler {
  int rank = 0, pid = 0;
  int looks = 0;         // in which all others waited for it
  double seconds = 0;    // that the window lasted
  double processor = 0;  // seconds of processor time that it used meanwhile
};
// "rank 2 (pid 812) is slow: in 55 of 60 looks at it (30 s) all other ranks of this node waited for it; ..."
std::string slow_words(const Straggler& slow);

class Stragglers {
 public:
  static constexpr int kLooks = 60;  // a window
  static constexpr double kPart = 0.8;

  // One look, at a moment in which the ranks get on or do not. The rank that is found slow, at the end of a window and
  // once in a job; nobody while all stand still, for that is no slowness.
  std::optional<Straggler> look(const std::vector<RankSeen>& ranks, bool standing);
  // The share of the last few looks in which the rank was in a call; -1: too few looks.
  double waits(int rank) const;

 private:
  struct Counted {
    int awaited = 0;            // looks of this window in which the others waited for it
    std::int64_t began = 0;     // of the window, in nanoseconds
    double processor_then = 0;  // at that time
    int looks = 0;
    double waits = 0;
    bool told = false;
  };
  int looks_ = 0;
  std::map<int, Counted> ranks_;
};

}  // namespace tutti
