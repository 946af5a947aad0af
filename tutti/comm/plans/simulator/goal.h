#pragma once
// The promise of a verb, as data: the contents of a rank's buffers before the call, and the required contents after it.
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/plans/plan.h"
#include "tutti/comm/verb.h"

namespace tutti::comm {

struct Goal {
  // Bytes from `position` on of rank `source`'s input, or of the sum of the inputs of `ranks` ranks starting with
  // `source`.
  struct Term {
    Range range;
    int source;
    std::size_t position;
    int ranks = 1;
  };

  std::size_t in_bytes = 0, out_bytes = 0;  // 0 if the rank has no such buffer
  bool overlap = false;                     // in place: the buffers share memory,
  std::size_t in_at = 0, out_at = 0;        // and begin at these offsets in it
  std::vector<Term> before, after;
};

// The goal of `rank`. `shapes` holds the shapes of all ranks.
Goal goal_of(Kind kind, std::span<const Shape> shapes, int rank);

}  // namespace tutti::comm
