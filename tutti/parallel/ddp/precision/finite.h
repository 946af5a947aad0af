#pragma once
// NaN and infinity in gradients: found before the average spreads them, so that the rank that made them can be named,
// and told to all, so that all decide alike.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>

#include "tutti/base/dtype.h"
#include "tutti/comm/group.h"

namespace tutti {

// Of floating and complex numbers; of others always true. One pass at the speed of memory.
bool all_finite(DType dtype, const void* data, std::size_t count);

// What a rank saw in one step. One thread at a time.
class NonFiniteWatch {
 public:
  struct Found {
    std::size_t parameter = 0;
    int rank = 0;  // kOnTheWay: every rank's was finite, their average is not
    static constexpr int kOnTheWay = -1;
  };
  void begin_step() { mine_ = kNothing; }
  void note(const Group& group, std::size_t parameter);
  void note_on_the_way(const Group& group, std::size_t parameter);
  // Every rank calls: the lowest parameter of any rank, and of its ranks the lowest.
  std::optional<Found> agree(const Group& group) const;

 private:
  static constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::max();
  std::int64_t mine_ = kNothing;  // parameter * (size + 1) + rank; "on the way" is rank `size`
};

}  // namespace tutti
