#include "tutti/parallel/gradients/finite.h"

#include <algorithm>

#include "tutti/comm/collectives.h"
#include "tutti/comm/kernels/finite.h"

namespace tutti {

void NonFiniteWatch::note(const Group& group, const Found& found) {
  const int rank = found.rank < 0 ? group.size() - 1 - found.rank : found.rank;
  mine_ = std::min(mine_, std::int64_t(found.parameter) * (group.size() + 2) + rank);
}

std::optional<NonFiniteWatch::Found> NonFiniteWatch::agree(const Group& group) const {
  const auto lowest = all_reduce(group, mine_, ReduceOp::kMin);
  if (lowest == kNothing) return {};
  const auto rank = int(lowest % (group.size() + 2));
  return Found{std::size_t(lowest / (group.size() + 2)), rank < group.size() ? rank : group.size() - 1 - rank};
}

int rank_of_non_finite(DType dtype, std::span<const void* const> gradients, std::size_t first, std::size_t count) {
  for (std::size_t r = 0; r < gradients.size(); ++r)
    if (!comm::all_finite(dtype, static_cast<const std::byte*>(gradients[r]) + first * size_of(dtype), count))
      return int(r);
  return NonFiniteWatch::Found::kOnTheWay;
}

std::string non_finite_gradient(const std::string& parameter) {
  return "the gradient of " + parameter + " has a NaN or an infinity";
}
std::string non_finite_gradient(const std::string& parameter, int rank) {
  return non_finite_gradient(parameter) + " on rank " + std::to_string(rank);
}

std::string non_finite_over_ranks(const Group& group, const Group& model, const NonFiniteWatch& watch,
                                  const std::function<const std::string&(std::size_t parameter)>& name) {
  const auto found = watch.agree(group);
  std::string sentence;
  if (found && found->rank >= 0)
    sentence = non_finite_gradient(name(found->parameter), found->rank);
  else if (found)
    sentence = non_finite_gradient(name(found->parameter));
  if (model && all_reduce(model, std::int64_t(!sentence.empty()), ReduceOp::kMax) != 0 && sentence.empty())
    sentence = "a gradient of another part of the model has a NaN or an infinity";
  return sentence;
}

}  // namespace tutti
