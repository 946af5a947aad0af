#pragma once
// What a verb promises, as data: what the buffers of a rank hold before, and what they must hold after.
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/plans/plan.h"
#include "tutti/comm/verb.h"

namespace tutti {

struct Goal {
  // Bytes `position` and following of rank `source`'s input, or of the sum of the inputs of `ranks` ranks from there.
  struct Piece {
    Range range;
    int source;
    std::size_t position;
    int ranks = 1;
  };

  std::size_t in_bytes = 0, out_bytes = 0;  // 0 where the rank has no such buffer
  bool overlap = false;                     // the buffers share memory (in place):
  std::size_t in_at = 0, out_at = 0;        //   where each begins in it
  std::vector<Piece> before, after;
};

// Of `rank`. `shapes`: of all ranks.
Goal goal_of(Kind kind, std::span<const Shape> shapes, int rank);

}  // namespace tutti
