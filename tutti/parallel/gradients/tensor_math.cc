#include "tutti/parallel/gradients/tensor_math.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "tutti/comm/kernels/finite.h"
#include "tutti/comm/stream_calls.h"
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

using Numbers = std::vector<std::size_t>;

// The numbers of the tensors on each GPU; those without elements are on none.
std::vector<Numbers> by_gpu(std::span<const at::Tensor> tensors) {
  std::map<c10::DeviceIndex, Numbers> found;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (!tensors[i].device().is_cpu() && tensors[i].numel() > 0) found[tensors[i].device().index()].push_back(i);
  std::vector<Numbers> all;
  for (auto& [index, numbers] : found) all.push_back(std::move(numbers));
  return all;
}
std::vector<at::Tensor> picked(std::span<const at::Tensor> tensors, const Numbers& numbers) {
  std::vector<at::Tensor> some;
  for (const std::size_t i : numbers) some.push_back(tensors[i]);
  return some;
}

at::Tensor real_numbers(const at::Tensor& values) {
  return values.is_complex() ? at::view_as_real(values.detach()) : values.detach();
}

// Added in f64 by a LibTorch that can. A template, so that what this LibTorch lacks is not looked up.
template <class Tensors>
std::vector<at::Tensor> norms_of(Tensors tensors) {
  for (at::Tensor& values : tensors) values = real_numbers(values);
  if constexpr (requires { at::_foreach_norm(tensors, 2, at::kDouble); })
    return at::_foreach_norm(tensors, 2, at::kDouble);
  else
    return at::_foreach_norm(tensors, 2);
}

}  // namespace

at::Tensor in_order_of_memory(const at::Tensor& dense) {
  if (dense.dim() == 1 && dense.is_contiguous()) return dense.detach();
  return dense.detach().as_strided({dense.numel()}, {1});
}

bool all_finite(const at::Tensor& values) {
  const auto bytes = checked_bytes(in_order_of_memory(values), "a gradient");
  const auto* const data = static_cast<const std::byte*>(bytes.data);
  const std::size_t size = size_of(bytes.dtype);
  std::atomic<bool> finite{true};
  at::parallel_for(0, std::int64_t(bytes.count), kTileRun, [&](std::int64_t begin, std::int64_t end) {
    if (!comm::all_finite(bytes.dtype, data + std::size_t(begin) * size, std::size_t(end - begin)))
      finite.store(false, std::memory_order_relaxed);
  });
  return finite;
}

// An operator of norms propagates a NaN, and makes no copy of the values.
at::Tensor greatest_magnitude(const at::Tensor& values) {
  const at::Tensor greatest = at::linalg_vector_norm(real_numbers(values), std::numeric_limits<double>::infinity());
  return greatest.scalar_type() == at::kDouble ? greatest : greatest.to(at::kFloat);
}

std::vector<double> values_of(std::span<const at::Tensor> numbers) {
  std::vector<double> values(numbers.size());
  for (std::size_t i = 0; i < numbers.size(); ++i)
    if (numbers[i].device().is_cpu()) values[i] = numbers[i].item<double>();
  for (const auto& on_gpu : by_gpu(numbers)) {
    const at::Tensor read = at::stack(picked(numbers, on_gpu)).to(at::kCPU, at::kDouble);
    for (std::size_t k = 0; k < on_gpu.size(); ++k) values[on_gpu[k]] = read.data_ptr<double>()[k];
    await_stream_calls().or_throw();  // they come before what was read
  }
  return values;
}

// On a GPU norms come first, from one kernel for many tensors, and their squares on the host. Where those overflow, or
// a LibTorch that adds in f32 has, the sums are taken again in f64.
std::vector<SumOfSquares> squares_of(std::span<const at::Tensor> tensors) {
  std::vector<SumOfSquares> squares(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (const at::Tensor& values = tensors[i]; values.device().is_cpu())
      squares[i] = squares_of(dtype_of(values), values.data_ptr(), std::size_t(values.numel()));
  Numbers known, again;
  std::vector<at::Tensor> norms, sums;
  for (const auto& on_gpu : by_gpu(tensors)) {
    known.insert(known.end(), on_gpu.begin(), on_gpu.end());
    for (at::Tensor& norm : norms_of(picked(tensors, on_gpu))) norms.push_back(std::move(norm));
  }
  const auto sum_of = [](double value) { return SumOfSquares{value, std::ldexp(value, SumOfSquares::kExponent)}; };
  const std::vector<double> of_norms = values_of(norms);
  for (std::size_t k = 0; k < known.size(); ++k) {
    squares[known[k]] = sum_of(of_norms[k] * of_norms[k]);
    if (!squares[known[k]].finite()) again.push_back(known[k]);
  }
  for (const std::size_t i : again) {
    const at::Tensor wide = real_numbers(tensors[i]).to(at::kDouble);
    sums.push_back(wide.square().sum());
    sums.push_back(wide.mul(std::ldexp(1.0, SumOfSquares::kExponent / 2)).square().sum());
  }
  const std::vector<double> of_sums = values_of(sums);
  for (std::size_t k = 0; k < again.size(); ++k) {
    SumOfSquares& exact = squares[again[k]] = sum_of(of_sums[2 * k]);
    if (!exact.finite()) exact.scaled = of_sums[2 * k + 1];
  }
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
