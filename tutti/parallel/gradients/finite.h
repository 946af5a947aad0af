#pragma once
// NaN and infinity in gradients: what a rank has found, and what all ranks agree on.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "tutti/base/dtype.h"
#include "tutti/comm/group.h"

namespace tutti {

// What a rank has found in one step. One thread at a time.
class NonFiniteWatch {
 public:
  struct Found {
    std::size_t parameter = 0;
    int rank = 0;                            // whose gradient it was, or:
    static constexpr int kOnTheWay = -1;     // every rank's gradient was finite, their average is not
    static constexpr int kUnknownRank = -2;  // the average is not finite, and the ranks' gradients are gone
  };
  void begin_step() { mine_ = kNothing; }
  void note(const Group& group, const Found& found);
  // Every rank calls: a barrier. The lowest parameter that any rank has found, and its lowest rank, if one is known.
  std::optional<Found> agree(const Group& group) const;

 private:
  static constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::max();
  // parameter * (size + 2) + rank; kOnTheWay and kUnknownRank come after all ranks. The least of all ranks' numbers is
  // what they agree on.
  std::int64_t mine_ = kNothing;
};

// The lowest rank of whose elements one is not finite; kOnTheWay: none. `gradients`: by rank.
int rank_of_non_finite(DType dtype, std::span<const void* const> gradients, std::size_t first, std::size_t count);

// "the gradient of fc.weight has a NaN or an infinity", "... on rank 2"
std::string non_finite_gradient(const std::string& parameter);
std::string non_finite_gradient(const std::string& parameter, int rank);

// Every rank of `group` calls, and of `model` (if given: the ranks that have the whole model together). The sentence
// about the first gradient that is not finite; empty: all gradients are finite.
std::string non_finite_over_ranks(const Group& group, const Group& model, const NonFiniteWatch& watch,
                                  const std::function<const std::string&(std::size_t parameter)>& name);

}  // namespace tutti
