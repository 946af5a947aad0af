// The loops behind update.h, compiled once per instruction set: each update_<isa>.cc defines TUTTI_ISA and includes
// this file. Not for other includes.
//
// The loops are plain, and compilers vectorise them: memory is what bounds an update. They are compiled without
// contraction to fused multiply-adds, so that a step has the same bits whatever the CPU. The formula is a template
// argument, and what it does not need is not loaded.
#include <cmath>
#include <cstdint>

#include "tutti/base/independent_loop.h"
#include "tutti/base/update_formulas.h"
#include "tutti/parallel/optim/kernels/update_isa.h"

namespace tutti::kernels::TUTTI_ISA {
namespace {

// A NaN compares as false, and stays.
template <class T>
[[gnu::always_inline]] inline T clamped(T value, T limit) {
  value = value > limit ? limit : value;
  return value < -limit ? -limit : value;
}

template <class T, Update::Formula kFormula>
void update_all(const Update& u, T* __restrict w, const T* __restrict gradient, T* __restrict m, T* __restrict v,
                T* __restrict greatest, std::int64_t count) {
  using Formula = Update::Formula;
  const T step_size = T(u.step_size), decay = T(u.decay), shrink = T(u.shrink), scale = T(u.scale), limit = T(u.limit);
  const T beta1 = T(u.beta1), fresh1 = T(u.fresh1), beta2 = T(u.beta2), fresh2 = T(u.fresh2);
  const T root_factor = T(u.root_factor), eps = T(u.eps);
  TUTTI_INDEPENDENT
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = clamped(scale * gradient[i], limit) + decay * w[i];
    const T before = shrink * w[i];
    if constexpr (kFormula == Formula::kPlain) {
      w[i] = plain_update(before, g, step_size);
    } else if constexpr (kFormula == Formula::kMomentum || kFormula == Formula::kNesterov) {
      const T momentum = beta1 * m[i] + fresh1 * g;
      m[i] = momentum;
      w[i] = before - step_size * (kFormula == Formula::kNesterov ? g + beta1 * momentum : momentum);
    } else if constexpr (kFormula == Formula::kAdagrad) {
      w[i] = adagrad_update(before, g, m[i], step_size, eps);
    } else if constexpr (kFormula == Formula::kLion) {
      const T direction = beta1 * m[i] + fresh1 * g;
      m[i] = beta2 * m[i] + fresh2 * g;
      w[i] = before - step_size * (T(direction > 0) - T(direction < 0));
    } else {
      const T average = beta1 * m[i] + fresh1 * g;
      T square = beta2 * v[i] + fresh2 * (g * g);
      m[i] = average;
      v[i] = square;
      if constexpr (kFormula == Formula::kAmsgrad) {
        square = greatest[i] > square ? greatest[i] : square;
        greatest[i] = square;
      }
      w[i] = before - step_size * (average / (std::sqrt(square) * root_factor + eps));
    }
  }
}

template <class T>
void by_formula(const Update& u, T* w, const T* g, void* const* state, std::int64_t count) {
  using Formula = Update::Formula;
  const auto at = [&](int k) { return static_cast<T*>(state[k]); };
  switch (u.formula) {
    case Formula::kPlain:
      return update_all<T, Formula::kPlain>(u, w, g, nullptr, nullptr, nullptr, count);
    case Formula::kMomentum:
      return update_all<T, Formula::kMomentum>(u, w, g, at(0), nullptr, nullptr, count);
    case Formula::kNesterov:
      return update_all<T, Formula::kNesterov>(u, w, g, at(0), nullptr, nullptr, count);
    case Formula::kAdam:
      return update_all<T, Formula::kAdam>(u, w, g, at(0), at(1), nullptr, count);
    case Formula::kAmsgrad:
      return update_all<T, Formula::kAmsgrad>(u, w, g, at(0), at(1), at(2), count);
    case Formula::kAdagrad:
      return update_all<T, Formula::kAdagrad>(u, w, g, at(0), nullptr, nullptr, count);
    case Formula::kLion:
      return update_all<T, Formula::kLion>(u, w, g, at(0), nullptr, nullptr, count);
  }
}

void apply(const Update& u, DType dtype, void* w, const void* g, void* const* state, std::size_t count) {
  if (dtype == DType::kF32)
    by_formula(u, static_cast<float*>(w), static_cast<const float*>(g), state, std::int64_t(count));
  else
    by_formula(u, static_cast<double*>(w), static_cast<const double*>(g), state, std::int64_t(count));
}

// Element i goes to sum i % kLanes, and the sums are added in pairs: the same bits with vectors of any width.
template <class T>
double squares_of(const T* values, std::size_t count) {
  constexpr std::size_t kLanes = 32;
  double sums[kLanes] = {};
  std::size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    TUTTI_INDEPENDENT
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const double value = double(values[i + lane]);
      sums[lane] += value * value;
    }
  }
  for (std::size_t lane = 0; i < count; ++i, ++lane) sums[lane] += double(values[i]) * double(values[i]);
  for (std::size_t width = kLanes / 2; width > 0; width /= 2)
    for (std::size_t lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  return sums[0];
}

double squares(DType dtype, const void* values, std::size_t count) {
  return dtype == DType::kF32 ? squares_of(static_cast<const float*>(values), count)
                              : squares_of(static_cast<const double*>(values), count);
}

template <class T>
void scale_all(T* values, T factor, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] *= factor;
}
void scale(DType dtype, void* values, double factor, std::size_t count) {
  dtype == DType::kF32 ? scale_all(static_cast<float*>(values), float(factor), count)
                       : scale_all(static_cast<double*>(values), factor, count);
}

template <class T>
void clamp_all(T* values, T limit, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) values[i] = clamped(values[i], limit);
}
void clamp(DType dtype, void* values, double limit, std::size_t count) {
  dtype == DType::kF32 ? clamp_all(static_cast<float*>(values), float(limit), count)
                       : clamp_all(static_cast<double*>(values), limit, count);
}

}  // namespace

const UpdateLoops kUpdateLoops = {apply, squares, scale, clamp};

}  // namespace tutti::kernels::TUTTI_ISA
