#include "tutti/parallel/gradients/tensor_math.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <cmath>

#include "tutti/comm/kernels/finite.h"
#include "tutti/parallel/gradients/average_tiles.h"
#include "tutti/parallel/optim/rule_state.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

DType dtype_of(const at::Tensor& values) {
  TUTTI_INVARIANT(values.scalar_type() == at::kFloat || values.scalar_type() == at::kDouble, describe(values));
  return values.scalar_type() == at::kFloat ? DType::kF32 : DType::kF64;
}
std::byte* bytes_of(const at::Tensor& values) { return static_cast<std::byte*>(values.data_ptr()); }

// Autograd must see that values that it saved were overwritten.
void note_write(const at::Tensor& values) {
  if (!values.is_inference()) values.unsafeGetTensorImpl()->bump_version();
}

template <class Act>
void for_runs(const at::Tensor& values, const Act& act) {
  auto* const data = bytes_of(values);
  const DType dtype = dtype_of(values);
  const auto size = std::int64_t(size_of(dtype));
  at::parallel_for(0, values.numel(), kTileRun, [&](std::int64_t begin, std::int64_t end) {
    act(dtype, data + begin * size, std::size_t(end - begin));
  });
  note_write(values);
}

// As apply_update() on pointers, line by line.
void apply_with_operators(const Update& update, const at::Tensor& w, at::Tensor g, std::span<const at::Tensor> state) {
  using Formula = Update::Formula;
  if (update.scale != 1) g = g.mul(update.scale);
  if (std::isfinite(update.limit)) g = g.clamp(-update.limit, update.limit);
  if (update.decay != 0) g = g.add(w, update.decay);
  if (update.shrink != 1) w.mul_(update.shrink);
  const auto average = [&](double kept) { state[0].mul_(kept).add_(g, update.fresh1); };
  switch (update.formula) {
    case Formula::kPlain:
      w.sub_(g, update.step_size);
      return;
    case Formula::kMomentum:
      average(update.beta1);
      w.sub_(state[0], update.step_size);
      return;
    case Formula::kNesterov:
      average(update.beta1);
      w.sub_(g.add(state[0], update.beta1), update.step_size);
      return;
    case Formula::kAdam:
    case Formula::kAmsgrad: {
      average(update.beta1);
      state[1].mul_(update.beta2).addcmul_(g, g, update.fresh2);
      const bool greatest = update.formula == Formula::kAmsgrad;
      if (greatest) state[2].copy_(at::maximum(state[2], state[1]));
      const at::Tensor root = state[greatest ? 2 : 1].sqrt().mul_(update.root_factor).add_(update.eps);
      w.addcdiv_(state[0], root, -update.step_size);
      return;
    }
    case Formula::kAdagrad:
      state[0].addcmul_(g, g);
      w.addcdiv_(g, state[0].sqrt().add_(update.eps), -update.step_size);
      return;
    case Formula::kLion:
      w.sub_(state[0].mul(update.beta1).add_(g, update.fresh1).sign_(), update.step_size);
      state[0].mul_(update.beta2).add_(g, update.fresh2);
      return;
  }
}

}  // namespace

at::Tensor in_order_of_memory(const at::Tensor& dense) {
  if (dense.dim() == 1 && dense.is_contiguous()) return dense.detach();
  return dense.detach().as_strided({dense.numel()}, {1});
}

bool all_finite(const at::Tensor& values) { return all_finite(values, 0, values.numel()); }

bool all_finite(const at::Tensor& values, std::int64_t from, std::int64_t count) {
  const at::Tensor flat = in_order_of_memory(values);
  if (!flat.device().is_cpu()) return at::isfinite(flat.narrow(0, from, count)).all().item<bool>();
  const auto bytes = checked_bytes(flat, "a gradient");
  const auto* const data = static_cast<const std::byte*>(bytes.data);
  std::atomic<bool> finite{true};
  at::parallel_for(from, from + count, kTileRun, [&](std::int64_t begin, std::int64_t end) {
    if (!comm::all_finite(bytes.dtype, data + begin * flat.element_size(), std::size_t(end - begin)))
      finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

SumOfSquares squares_of(const at::Tensor& values) {
  if (values.device().is_cpu()) return squares_of(dtype_of(values), values.data_ptr(), std::size_t(values.numel()));
  if (values.numel() == 0) return {};
  const at::Tensor wide = values.detach().to(at::kDouble);
  const auto sum_of = [](const at::Tensor& numbers) { return numbers.square().sum().item<double>(); };
  const double sum = sum_of(wide);
  SumOfSquares squares{sum, std::ldexp(sum, SumOfSquares::kExponent)};
  if (!squares.finite()) squares.scaled = sum_of(wide.mul(std::ldexp(1.0, SumOfSquares::kExponent / 2)));
  return squares;
}

void scale_tensor(const at::Tensor& values, double factor) {
  if (!values.device().is_cpu()) return void(values.detach().mul_(factor));
  for_runs(values, [&](DType dtype, void* data, std::size_t count) { scale_values(dtype, data, factor, count); });
}

void clamp_tensor(const at::Tensor& values, double limit) {
  if (!values.device().is_cpu()) return void(values.detach().clamp_(-limit, limit));
  for_runs(values, [&](DType dtype, void* data, std::size_t count) { clamp_values(dtype, data, limit, count); });
}

void update_tensor(const Update& update, const at::Tensor& weight, const at::Tensor& gradient,
                   std::span<const at::Tensor> state) {
  if (!weight.device().is_cpu())
    return apply_with_operators(update, in_order_of_memory(weight), in_order_of_memory(gradient), state);
  update_elements(update, dtype_of(weight), bytes_of(weight), bytes_of(gradient), state, 0, weight.numel());
  note_write(weight);
}

}  // namespace tutti
