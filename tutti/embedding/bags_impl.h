// The loops behind bags.h, compiled once per instruction set: each bags_<isa>.cc defines TUTTI_ISA and includes this
// file. Not for other includes.
//
// Rows lie anywhere in gigabytes, so a row is fetched from memory once for nearly every lookup, and all that counts is
// to have many fetches under way: each row is prefetched kAhead lookups before it is needed, which is also when its
// index is checked. A row of 1, 2, 4 or 8 vectors of 64 bytes is summed up in registers; other widths go through a
// small buffer. A vector is the same 64 bytes for every instruction set, so sums have the same order, and the same
// bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tutti/base/update_formulas.h"
#include "tutti/embedding/bags_isa.h"

namespace tutti::kernels::TUTTI_ISA {
namespace {

constexpr std::int64_t kAhead = 32;  // lookups
constexpr std::int64_t kLine = 64;   // bytes

template <class T>
constexpr int kLanes = int(64 / sizeof(T));

template <class T>
struct VectorOf {
  typedef T Aligned __attribute__((vector_size(64)));
  typedef T Unaligned __attribute__((vector_size(64), aligned(sizeof(T)), may_alias));
};
template <class T>
using Vector = typename VectorOf<T>::Aligned;

template <class T>
[[gnu::always_inline]] inline Vector<T> load(const T* from) {
  return *reinterpret_cast<const typename VectorOf<T>::Unaligned*>(from);
}
template <class T>
[[gnu::always_inline]] inline void store(T* to, Vector<T> value) {
  *reinterpret_cast<typename VectorOf<T>::Unaligned*>(to) = value;
}

template <bool kWrite>
[[gnu::always_inline]] inline void prefetch(const void* at, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += kLine) __builtin_prefetch(static_cast<const char*>(at) + i, kWrite, 3);
}

// ---- pooled sums

// Calls use(k, row, weight) for every lookup of a sample, done(s) after each sample; fetches ahead.
template <bool kLocated, class T, class Begin, class Use, class Done>
[[gnu::always_inline]] inline std::int64_t walk(const Bags<T>& bags, Begin begin, Use use, Done done) {
  const std::int64_t first = bags.offsets[bags.begin], last = bags.offsets[bags.end], width = bags.width;
  const std::int64_t bytes = width * std::int64_t(sizeof(T));
  const auto at = [&](std::int64_t k) {
    return kLocated ? bags.located[k - first] : bags.rows + bags.indices[k] * width;
  };
  const auto is_good = [&](std::int64_t k) { return std::uint64_t(bags.indices[k]) < std::uint64_t(bags.count); };
  for (std::int64_t k = first; k < std::min(first + kAhead, last); ++k) {
    if (!is_good(k)) return k;
    prefetch<false>(at(k), bytes);
  }
  for (std::int64_t s = bags.begin; s < bags.end; ++s) {
    begin();
    for (std::int64_t k = bags.offsets[s]; k < bags.offsets[s + 1]; ++k) {
      if (const std::int64_t ahead = k + kAhead; ahead < last) {
        if (!is_good(ahead)) [[unlikely]]
          return ahead;
        prefetch<false>(at(ahead), bytes);
      }
      use(at(k), bags.weights ? bags.weights[bags.indices[k]] : T(1));
    }
    done(s);
  }
  return -1;
}

template <int kVectors, bool kLocated, class T>
std::int64_t pool_in_registers(const Bags<T>& bags) {
  Vector<T> sum[kVectors];
  return walk<kLocated>(
      bags,
      [&] {
        for (int v = 0; v < kVectors; ++v) sum[v] = Vector<T>{};
      },
      [&](const T* row, T weight) {
        if (bags.weights) {
          for (int v = 0; v < kVectors; ++v) sum[v] += weight * load(row + v * kLanes<T>);
        } else {
          for (int v = 0; v < kVectors; ++v) sum[v] += load(row + v * kLanes<T>);
        }
      },
      [&](std::int64_t s) {
        T* const out = bags.out + (s - bags.begin) * bags.stride;
        for (int v = 0; v < kVectors; ++v) store(out + v * kLanes<T>, sum[v]);
      });
}

// Straight into the output, which stays in the first-level cache.
template <bool kLocated, class T>
std::int64_t pool_any_width(const Bags<T>& bags) {
  T* __restrict out = bags.out;
  const std::int64_t width = bags.width;
  return walk<kLocated>(
      bags, [&] { std::fill_n(out, width, T(0)); },
      [&](const T* __restrict row, T weight) {
        if (bags.weights) {
          for (std::int64_t i = 0; i < width; ++i) out[i] += weight * row[i];
        } else {
          for (std::int64_t i = 0; i < width; ++i) out[i] += row[i];
        }
      },
      [&](std::int64_t) { out += bags.stride; });
}

template <bool kLocated, class T>
std::int64_t pool_by_width(const Bags<T>& bags) {
  switch (bags.width) {
    case kLanes<T>:
      return pool_in_registers<1, kLocated>(bags);
    case 2 * kLanes<T>:
      return pool_in_registers<2, kLocated>(bags);
    case 4 * kLanes<T>:
      return pool_in_registers<4, kLocated>(bags);
    case 8 * kLanes<T>:
      return pool_in_registers<8, kLocated>(bags);
    default:
      return pool_any_width<kLocated>(bags);
  }
}

// ---- the step

// The sum of a vector's lanes, in a fixed order.
template <class T>
[[gnu::always_inline]] inline T lanes_sum(Vector<T> v) {
  T lanes[kLanes<T>];
  std::memcpy(lanes, &v, sizeof v);
  for (int half = kLanes<T> / 2; half > 0; half /= 2)
    for (int i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  return lanes[0];
}

// a . b, with a sum for each lane, so that the order does not depend on the instruction set.
template <class T>
T dot(const T* a, const T* b, std::int64_t count) {
  Vector<T> sum{};
  std::int64_t i = 0;
  for (; i + kLanes<T> <= count; i += kLanes<T>) sum += load(a + i) * load(b + i);
  T rest = 0;
  for (; i < count; ++i) rest += a[i] * b[i];
  return lanes_sum<T>(sum) + rest;
}

template <class T>
[[gnu::always_inline]] inline T adagrad_step(const RowStep<T>& step, T& accumulator, T square) {
  accumulator += square;
  return T(step.lr) / (std::sqrt(accumulator) + T(step.eps));
}

// What a step does with the gradient of one row, wherever that was summed up. a: its accumulators.
template <class T>
[[gnu::always_inline]] inline void step_row(const RowStep<T>& step, std::uint32_t row, T* __restrict p, T* __restrict g,
                                            T* __restrict a, std::int64_t width, std::int64_t run) {
  if (step.scale != 1)
    for (std::int64_t i = 0; i < width; ++i) g[i] *= T(step.scale);
  T of_weight = 0;
  if (step.weights) {
    if (step.learned) of_weight = dot(g, p, width);
    const T weight = step.weights[row];
    for (std::int64_t i = 0; i < width; ++i) g[i] *= weight;
  }
  T square = step.rule == TableRule::kRowWiseAdagrad ? dot(g, g, width) : T(0);
  if (step.sums_of_columns) {
    step.sums_of_columns[2 * run] = square;
    step.sums_of_columns[2 * run + 1] = of_weight;
    return;
  }
  if (step.sums_of_rows) {
    square = step.sums_of_rows[2 * run];
    of_weight = step.sums_of_rows[2 * run + 1];
  }
  switch (step.rule) {
    case TableRule::kSgd: {
      const T lr = T(step.lr);
      for (std::int64_t i = 0; i < width; ++i) p[i] = plain_update(p[i], g[i], lr);
      break;
    }
    case TableRule::kAdagrad: {
      const T lr = T(step.lr), eps = T(step.eps);
      for (std::int64_t i = 0; i < width; ++i) p[i] = adagrad_update(p[i], g[i], a[i], lr, eps);
      break;
    }
    case TableRule::kRowWiseAdagrad: {
      const T factor = adagrad_step(step, *a, square / T(step.dim));
      for (std::int64_t i = 0; i < width; ++i) p[i] = plain_update(p[i], g[i], factor);
      break;
    }
  }
  if (step.learned) {
    const T factor =
        step.rule == TableRule::kSgd ? T(step.lr) : adagrad_step(step, step.weight_state[row], of_weight * of_weight);
    step.weights[row] = plain_update(step.weights[row], of_weight, factor);
  }
}

// kVectors > 0: the width is known, and the gradient of a row stays in registers.
template <int kVectors, class T>
void step_all(const RowStep<T>& step) {
  const RowUse* const uses = step.uses.data();
  const std::int64_t count = std::int64_t(step.uses.size());
  const std::int64_t width = kVectors > 0 ? kVectors * kLanes<T> : step.width;
  const std::int64_t bytes = width * std::int64_t(sizeof(T));
  alignas(64) T in_registers[kVectors > 0 ? kVectors * kLanes<T> : 1];
  std::vector<T> in_memory(kVectors > 0 ? 0 : std::size_t(width));
  T* const g = kVectors > 0 ? in_registers : in_memory.data();
  const bool adagrad = step.rule == TableRule::kAdagrad;
  const std::int64_t state_width = adagrad ? width : 1;
  // (Always inlined: a function that does nothing but prefetch is one without effects to GCC, which drops calls of it.)
  const auto fetch = [&](std::int64_t k) __attribute__((always_inline)) {
    const std::int64_t row = row_of(uses[k]);
    if (step.located.empty()) prefetch<true>(step.rows + row * width, bytes);
    if (step.state) prefetch<true>(step.state + row * state_width, state_width * std::int64_t(sizeof(T)));
  };
  for (std::int64_t k = 0; k < std::min(kAhead, count); ++k) fetch(k);
  std::int64_t run = 0;
  for (std::int64_t k = 0; k < count; ++run) {
    const std::uint32_t row = row_of(uses[k]);
    const T* first = step.gradients[sample_of(uses[k])];
    if constexpr (kVectors > 0) {
      Vector<T> sum[kVectors];
      for (int v = 0; v < kVectors; ++v) sum[v] = load(first + v * kLanes<T>);
      if (k + kAhead < count) fetch(k + kAhead);
      for (++k; k < count && row_of(uses[k]) == row; ++k) {
        if (k + kAhead < count) fetch(k + kAhead);
        const T* next = step.gradients[sample_of(uses[k])];
        for (int v = 0; v < kVectors; ++v) sum[v] += load(next + v * kLanes<T>);
      }
      for (int v = 0; v < kVectors; ++v) store(g + v * kLanes<T>, sum[v]);
    } else {
      std::copy_n(first, width, g);
      if (k + kAhead < count) fetch(k + kAhead);
      for (++k; k < count && row_of(uses[k]) == row; ++k) {
        if (k + kAhead < count) fetch(k + kAhead);
        const T* __restrict next = step.gradients[sample_of(uses[k])];
        for (std::int64_t i = 0; i < width; ++i) g[i] += next[i];
      }
    }
    if (step.located.empty()) {
      T* const p = step.rows + std::int64_t(row) * width;
      step_row(step, row, p, g, step.state ? step.state + std::int64_t(row) * state_width : nullptr, width, run);
      continue;
    }
    if (const std::size_t ahead = std::size_t(run + kAhead); ahead < step.located.size())
      prefetch<true>(step.located[ahead], bytes * (adagrad ? 2 : 1));
    T* const p = step.located[std::size_t(run)];
    step_row(step, row, p, g, adagrad ? p + width : step.state ? step.state + row : nullptr, width, run);
  }
}

template <class T>
void step_by_width(const RowStep<T>& step) {
  switch (step.width) {
    case kLanes<T>:
      return step_all<1>(step);
    case 2 * kLanes<T>:
      return step_all<2>(step);
    case 4 * kLanes<T>:
      return step_all<4>(step);
    case 8 * kLanes<T>:
      return step_all<8>(step);
    default:
      return step_all<0>(step);
  }
}

}  // namespace

std::int64_t pool(const Bags<float>& bags) {
  return bags.located ? pool_by_width<true>(bags) : pool_by_width<false>(bags);
}
std::int64_t pool(const Bags<double>& bags) {
  return bags.located ? pool_by_width<true>(bags) : pool_by_width<false>(bags);
}
void step_rows(const RowStep<float>& step) { step_by_width(step); }
void step_rows(const RowStep<double>& step) { step_by_width(step); }

}  // namespace tutti::kernels::TUTTI_ISA
