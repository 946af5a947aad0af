#pragma once
// The arithmetic of optimizers and of clipping, element by element: f32 and f64, computed in that type. Loops for the
// widest instructions that this CPU has are chosen at the start; all of them give the same bits. No alignment is
// needed.
#include <cstddef>
#include <limits>

#include "tutti/base/dtype.h"

namespace tutti {

// One step of a rule, its factors worked out. With g = scale * gradient clamped to +-limit, + decay * w;
// w *= shrink, and then
//   kPlain     w -= step_size * g
//   kMomentum  m = beta1 * m + fresh1 * g;  w -= step_size * m
//   kNesterov  m = beta1 * m + fresh1 * g;  w -= step_size * (g + beta1 * m)
//   kAdam      m = beta1 * m + fresh1 * g;  v = beta2 * v + fresh2 * g * g;
//              w -= step_size * m / (sqrt(v) * root_factor + eps)
//   kAmsgrad   the same with the greatest v so far, the third of the state, in the last line
//   kAdagrad   v += g * g;  w -= step_size * g / (sqrt(v) + eps)
//   kLion      w -= step_size * sign(beta1 * m + fresh1 * g);  m = beta2 * m + fresh2 * g
struct Update {
  enum class Formula { kPlain, kMomentum, kNesterov, kAdam, kAmsgrad, kAdagrad, kLion };
  Formula formula = Formula::kPlain;
  double step_size = 0;
  double decay = 0, shrink = 1;
  double beta1 = 0, fresh1 = 1;
  double beta2 = 0, fresh2 = 1;
  double root_factor = 1, eps = 0;
  double scale = 1;                                        // clipping by norm
  double limit = std::numeric_limits<double>::infinity();  // clipping by value; a NaN stays one
};

// State: as many pointers as the formula has tensors. The ranges do not overlap.
void apply_update(const Update& update, DType dtype, void* weight, const void* gradient, void* const* state,
                  std::size_t count);

// In double, in an order that depends on the place of an element alone. Finite unless an element is not (or, of f64,
// has a square that overflows).
double sum_of_squares(DType dtype, const void* values, std::size_t count);
void scale_values(DType dtype, void* values, double factor, std::size_t count);
void clamp_values(DType dtype, void* values, double limit, std::size_t count);  // to +-limit; a NaN stays one

}  // namespace tutti
