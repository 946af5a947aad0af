#include "tutti/parallel/gradients/finite.h"

#include "tutti/comm/kernels/finite.h"

namespace tutti {
namespace {

constexpr int kRankBits = 24;
constexpr std::int64_t kNoRank = (std::int64_t(1) << kRankBits) - 3;  // less the negative ranks: above all others

}  // namespace

std::int64_t NonFinite::number() const {
  return std::int64_t(parameter) << kRankBits | (rank < 0 ? kNoRank - rank : rank);
}

std::optional<NonFinite> NonFinite::of(std::int64_t number) {
  if (number == kNone) return {};
  const std::int64_t rank = number & ((std::int64_t(1) << kRankBits) - 1);
  return NonFinite{std::size_t(number >> kRankBits), int(rank > kNoRank ? kNoRank - rank : rank)};
}

int rank_of_non_finite(DType dtype, std::span<const void* const> gradients, std::size_t first, std::size_t count) {
  for (std::size_t r = 0; r < gradients.size(); ++r)
    if (!comm::all_finite(dtype, static_cast<const std::byte*>(gradients[r]) + first * size_of(dtype), count))
      return int(r);
  return NonFinite::kOnTheWay;
}

std::string non_finite_gradient(const std::string& parameter, int rank) {
  const std::string sentence = "the gradient of " + parameter + " has a NaN or an infinity";
  return rank < 0 ? sentence : sentence + " on rank " + std::to_string(rank);
}

}  // namespace tutti
