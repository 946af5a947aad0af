#pragma once
// What the ranks know of NaN and infinity in their gradients, told to all, so that all decide alike.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "tutti/comm/group.h"

namespace tutti {

// What a rank saw in one step. One thread at a time.
class NonFiniteWatch {
 public:
  struct Found {
    std::size_t parameter = 0;
    int rank = 0;                            // that made it, or:
    static constexpr int kOnTheWay = -1;     // none: every rank's was finite, their average is not
    static constexpr int kUnknownRank = -2;  // the average is not, and what the ranks gave is gone
  };
  void begin_step() { mine_ = kNothing; }
  void note(const Group& group, const Found& found);
  // Every rank calls: the lowest parameter of any rank, and of its ranks the lowest, if one is known. A meeting.
  std::optional<Found> agree(const Group& group) const;

 private:
  static constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::max();
  std::int64_t mine_ = kNothing;  // parameter * (size + 2) + rank; behind all ranks "on the way", and "unknown"
};

}  // namespace tutti
