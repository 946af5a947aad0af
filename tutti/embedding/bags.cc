// Chooses, once, the loops for the widest instruction set that this CPU has; and sorts.
//
// The sort is a radix sort from the low digits of the row to the high ones, which is stable: the uses of a row stay in
// the order of the batch, and so does the sum of their gradients. Digits are cut so that all have about as many bits,
// at most 11: the counters and the ends of the streams that are written stay in the first-level cache.
#include "tutti/embedding/bags.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#include "tutti/base/cpu_dispatch.h"
#include "tutti/embedding/bags_isa.h"

namespace tutti {
namespace {

struct Loops {
  std::int64_t (*pool_f32)(const Bags<float>&);
  std::int64_t (*pool_f64)(const Bags<double>&);
  void (*step_f32)(const RowStep<float>&);
  void (*step_f64)(const RowStep<double>&);
};

#define TUTTI_BAG_LOOPS(isa) \
  Loops { kernels::isa::pool, kernels::isa::pool, kernels::isa::step_rows, kernels::isa::step_rows }
const Loops kLoops = TUTTI_FOR_THIS_CPU(TUTTI_BAG_LOOPS);
#undef TUTTI_BAG_LOOPS

constexpr int kMostDigitBits = 11, kMostPasses = 3;  // of 32 bits

}  // namespace

template <>
std::int64_t pool(const Bags<float>& bags) {
  return kLoops.pool_f32(bags);
}
template <>
std::int64_t pool(const Bags<double>& bags) {
  return kLoops.pool_f64(bags);
}
template <>
void step_rows(const RowStep<float>& step) {
  kLoops.step_f32(step);
}
template <>
void step_rows(const RowStep<double>& step) {
  kLoops.step_f64(step);
}

void sort_by_row(std::vector<RowUse>& uses, std::vector<RowUse>& scratch, std::int64_t rows) {
  constexpr std::size_t kFew = 512;  // where clearing counters would cost more than comparing
  const auto less = [](RowUse a, RowUse b) { return row_of(a) < row_of(b); };
  if (uses.size() < kFew) return std::stable_sort(uses.begin(), uses.end(), less);
  scratch.resize(uses.size());
  const int bits = std::max(1, int(std::bit_width(std::uint64_t(rows) - 1)));
  const int passes = (bits + kMostDigitBits - 1) / kMostDigitBits, digit_bits = (bits + passes - 1) / passes;
  const std::uint32_t mask = (std::uint32_t(1) << digit_bits) - 1;
  std::array<std::array<std::uint32_t, 1 << kMostDigitBits>, kMostPasses> next{};  // where the next of a digit goes
  for (const RowUse use : uses)
    for (int pass = 0; pass < passes; ++pass) ++next[std::size_t(pass)][row_of(use) >> pass * digit_bits & mask];
  for (int pass = 0; pass < passes; ++pass) {
    auto& places = next[std::size_t(pass)];
    std::uint32_t begin = 0;
    for (std::uint32_t digit = 0; digit <= mask; ++digit) begin += std::exchange(places[digit], begin);
    RowUse* const to = scratch.data();
    for (const RowUse use : uses) to[places[row_of(use) >> pass * digit_bits & mask]++] = use;
    uses.swap(scratch);
  }
}

std::int64_t count_rows(std::span<const RowUse> uses) {
  std::int64_t count = uses.empty() ? 0 : 1;
  for (std::size_t k = 1; k < uses.size(); ++k) count += row_of(uses[k]) != row_of(uses[k - 1]);
  return count;
}

}  // namespace tutti
