// Operators on i64 in place of unsigned numbers of 32 and 64 bits. Products wrap around; a shift to the right brings
// the sign in, which a mask takes away.
#include "tutti/parallel/tensor/dropout_mask.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <vector>

namespace tutti {
namespace {

constexpr std::int64_t kLow32 = 0xFFFFFFFF;
constexpr std::int64_t kRunNumbers = std::int64_t(1) << 22;

std::int64_t bits(std::uint64_t value) { return std::int64_t(value); }

// x ^ x >> by, of 64 bits.
at::Tensor mixed(const at::Tensor& x, int by) {
  const std::int64_t kept = bits(~std::uint64_t(0) >> by);
  return x.bitwise_xor(x.bitwise_right_shift(by).bitwise_and_(kept));
}

// RandomMask::hash() of numbers below 2^32.
at::Tensor hash_low(const at::Tensor& x) {
  // Factors as signed numbers: then the products fit in 63 bits.
  const auto times = [](const at::Tensor& y, std::uint32_t factor) {
    return y.mul(std::int64_t(std::int32_t(factor))).bitwise_and_(kLow32);
  };
  return mixed(times(mixed(times(mixed(x, 16), 0x7FEB352Du), 15), 0x846CA68Bu), 16);
}

}  // namespace

// seed_at(), whose last two coordinates are 0.
at::Tensor row_keys(const RandomMask& random, const at::Tensor& positions, const at::Tensor& of) {
  const auto next = [](const at::Tensor& seed) {
    at::Tensor x = mixed(seed, 30).mul_(bits(0xBF58476D1CE4E5B9u));
    x = mixed(x, 27).mul_(bits(0x94D049BB133111EBu));
    return mixed(x, 31);
  };
  const std::int64_t step = bits(0x9E3779B97F4A7C15u), each = bits(0xBF58476D1CE4E5B9u);
  at::Tensor seed = next(positions.add(1).mul_(each).add_(step).add_(bits(random.seed())));
  seed = next(seed + of.mul(each).add_(step));
  for (int unused = 0; unused < 2; ++unused) seed = next(seed.add(step));
  return seed;
}

at::Tensor dropout_factors(const RandomMask& random, const at::Tensor& keys, const at::Tensor& columns,
                           at::ScalarType type) {
  std::vector<std::int64_t> sizes = keys.sizes().vec();
  sizes.push_back(columns.numel());
  const at::Tensor all = at::empty({keys.numel(), columns.numel()}, keys.options().dtype(type));
  const at::Tensor flat = keys.reshape({-1, 1}), low_columns = columns.bitwise_and(kLow32);
  // In runs of rows: numbers in between take 8 bytes each.
  const std::int64_t each = std::max<std::int64_t>(1, kRunNumbers / std::max<std::int64_t>(1, columns.numel()));
  for (std::int64_t first = 0; first < all.size(0); first += each) {
    const std::int64_t rows = std::min(each, all.size(0) - first);
    const at::Tensor key = flat.narrow(0, first, rows);
    const at::Tensor low = key.bitwise_and(kLow32), high = key.bitwise_right_shift(32).bitwise_and_(kLow32);
    const at::Tensor once = hash_low(low_columns.bitwise_xor(low));
    const at::Tensor drawn = hash_low(once.add(high).bitwise_and_(kLow32));
    all.narrow(0, first, rows).copy_(drawn.ge(std::int64_t(random.below())));
  }
  return all.mul_(random.scale()).view(sizes);
}

}  // namespace tutti
