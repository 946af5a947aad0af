#pragma once
// NaN and infinity in gradients: what ranks say about the first one.
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "tutti/base/dtype.h"

namespace tutti {

// A gradient that is not finite.
struct NonFinite {
  std::size_t parameter = 0;
  int rank = 0;                            // whose gradient it was, or:
  static constexpr int kOnTheWay = -1;     // every rank's gradient was finite, their average is not
  static constexpr int kUnknownRank = -2;  // the average is not finite, and the ranks' gradients are gone

  // As one number, for ranks to agree: the least of all numbers is of the lowest parameter, and then of its lowest
  // rank, if one is known.
  static constexpr std::int64_t kNone = std::numeric_limits<std::int64_t>::max();
  std::int64_t number() const;
  static std::optional<NonFinite> of(std::int64_t number);
};

// The lowest rank of whose elements one is not finite; NonFinite::kOnTheWay: none. `gradients`: by rank.
int rank_of_non_finite(DType dtype, std::span<const void* const> gradients, std::size_t first, std::size_t count);

// "the gradient of fc.weight has a NaN or an infinity", "... on rank 2" if `rank` is one
std::string non_finite_gradient(const std::string& parameter, int rank = NonFinite::kUnknownRank);

}  // namespace tutti
