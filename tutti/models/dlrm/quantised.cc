#include "tutti/models/dlrm/quantised.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/error.h"

namespace tutti::dlrm {
namespace {

constexpr int kWeightMost = 127, kInputMost = 255;

// One sample: out[j] = scale_j * step * (sum_i w_ji x_i - zero * sum_i w_ji) + bias_j, where the input is
// step * (x - zero) with x in 0 .. 255.
void multiply_row(const float* input, std::int64_t in, const std::int8_t* weight, const float* scales,
                  const std::int32_t* sums, std::int64_t out, std::vector<std::uint8_t>& rounded, float* to) {
  const auto [least, most] = std::minmax_element(input, input + in);
  const float low = std::min(*least, 0.f), high = std::max(*most, 0.f);
  const float step = high > low ? (high - low) / kInputMost : 1.f;
  const auto zero = std::int32_t(std::nearbyint(-low / step));
  for (std::int64_t i = 0; i < in; ++i)
    rounded[std::size_t(i)] =
        std::uint8_t(std::clamp(std::int32_t(std::nearbyint(input[i] / step)) + zero, 0, kInputMost));
  for (std::int64_t row = 0; row < out; ++row) {
    const std::int8_t* w = weight + row * in;
    std::int32_t sum = 0;
    for (std::int64_t i = 0; i < in; ++i) sum += std::int32_t(w[i]) * std::int32_t(rounded[std::size_t(i)]);
    to[row] = scales[row] * step * float(sum - zero * sums[row]);
  }
}

// multiply_row() of all samples, by operators of a GPU. Sums of whole numbers are exact in f64 too.
at::Tensor multiply_rows(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& scales,
                         const at::Tensor& sums) {
  const auto low = input.amin({1}, true).clamp_max(0), high = input.amax({1}, true).clamp_min(0);
  const auto step = at::where(high > low, (high - low) / kInputMost, at::ones_like(low));
  const auto zero = (-low / step).round();
  const auto rounded = ((input / step).round() + zero).clamp(0, kInputMost).to(at::kDouble);
  const auto products = rounded.mm(weight.to(at::kDouble).t()) - zero.to(at::kDouble) * sums.to(at::kDouble);
  return scales * step * products.to(at::kFloat);
}

}  // namespace

QuantisedMlp::QuantisedMlp(const Mlp& mlp, int bits) : sigmoid_(mlp.sigmoid()), bits_(bits) {
  TUTTI_REQUIRE(bits == 8 || bits == 16, "an MLP has 8 or 16 bits, not ", bits);
  const at::NoGradGuard no_grad;
  for (const auto& linear : mlp.layers()) {
    const auto weight = linear->weight.detach();
    Layer layer{.bias = linear->bias.detach().clone()};
    if (bits == 16) {
      layer.weight = weight.to(at::kHalf);
    } else {
      const auto real = weight.to(at::kFloat);
      layer.scales = real.abs().amax({1}).clamp_min(1e-30) / kWeightMost;
      layer.weight =
          (real / layer.scales.unsqueeze(1)).round().clamp(-kWeightMost, kWeightMost).to(at::kChar).contiguous();
      layer.sums = layer.weight.to(at::kInt).sum(1).to(at::kInt).contiguous();
    }
    layers_.push_back(std::move(layer));
  }
}

at::Tensor QuantisedMlp::multiply(const Layer& layer, const at::Tensor& input) const {
  if (bits_ == 16) return at::addmm(layer.bias, input, layer.weight.to(input.scalar_type()).t());
  const auto in = layer.weight.size(1), out = layer.weight.size(0);
  const auto real = input.to(at::kFloat).contiguous();
  if (!real.device().is_cpu())
    return multiply_rows(real, layer.weight, layer.scales, layer.sums).to(input.scalar_type()).add_(layer.bias);
  const auto result = at::empty({real.size(0), out}, at::kFloat);
  at::parallel_for(0, real.size(0), 8, [&](std::int64_t begin, std::int64_t end) {
    std::vector<std::uint8_t> rounded(std::size_t(in), 0);
    for (auto sample = begin; sample < end; ++sample) {
      multiply_row(real.data_ptr<float>() + sample * in, in, layer.weight.data_ptr<std::int8_t>(),
                   layer.scales.data_ptr<float>(), layer.sums.data_ptr<std::int32_t>(), out, rounded,
                   result.data_ptr<float>() + sample * out);
    }
  });
  return result.to(input.scalar_type()).add_(layer.bias);
}

at::Tensor QuantisedMlp::infer(const at::Tensor& input) const {
  auto output = input;
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    output = multiply(layers_[i], output);
    output = sigmoid_ && i + 1 == layers_.size() ? output.sigmoid_() : output.relu_();
  }
  return output;
}

std::size_t QuantisedMlp::weight_bytes() const {
  std::size_t bytes = 0;
  for (const auto& layer : layers_) bytes += layer.weight.nbytes();
  return bytes;
}

void round_rows(const at::Tensor& rows, int bits) {
  const auto low = rows.amin({1}, true), high = rows.amax({1}, true);
  const auto step = ((high - low) / double((1 << bits) - 1)).clamp_min(1e-30);
  rows.sub_(low).div_(step).round_().mul_(step).add_(low);
}

}  // namespace tutti::dlrm
