#include "tutti/models/dlrm/dense.h"

#include <ATen/ATen.h>

#include "tutti/base/error.h"

namespace tutti::dlrm {

constexpr double kAdagradEpsilon = 1e-10;

DenseParameters::DenseParameters(at::ScalarType type, OptimizerKind optimizer, std::vector<Entry> entries)
    : entries_(std::move(entries)) {
  // Windows begin at multiples of 64 bytes, which matrix products like.
  const auto padded = [](const Entry& entry) { return (c10::multiply_integers(entry.shape) + 15) / 16 * 16; };
  std::int64_t size = 0;
  for (const auto& entry : entries_) size += padded(entry);
  values_ = at::zeros({size}, type);
  gradients_ = at::zeros({size}, type);
  if (optimizer != OptimizerKind::kSgd) squares_ = at::zeros({size}, type);
  std::int64_t begin = 0;
  for (auto& entry : entries_) {
    const auto count = c10::multiply_integers(entry.shape);
    entry.value = values_.narrow(0, begin, count).view(entry.shape);
    entry.gradient = gradients_.narrow(0, begin, count).view(entry.shape);
    if (squares_.defined()) entry.square = squares_.narrow(0, begin, count).view(entry.shape);
    begin += padded(entry);
  }
}

DenseParameters::Entry& DenseParameters::find(const std::string& name) {
  for (auto& entry : entries_) {
    if (entry.name == name) return entry;
  }
  TUTTI_INVARIANT(false, "there is no dense weight ", name);
  std::abort();
}

void DenseParameters::step(double learning_rate) {
  if (!squares_.defined()) {
    values_.add_(gradients_, -learning_rate);
    return;
  }
  squares_.addcmul_(gradients_, gradients_);
  values_.addcdiv_(gradients_, squares_.sqrt().add_(kAdagradEpsilon), -learning_rate);
}

std::vector<DenseParameters::Entry> Mlp::entries(const std::string& prefix, const std::vector<std::int64_t>& sizes) {
  std::vector<DenseParameters::Entry> entries;
  for (std::size_t layer = 0; layer + 1 < sizes.size(); ++layer) {
    const auto name = prefix + "." + std::to_string(2 * layer);  // the layers between are the activations
    entries.push_back({.name = name + ".weight", .shape = {sizes[layer + 1], sizes[layer]}});
    entries.push_back({.name = name + ".bias", .shape = {sizes[layer + 1]}});
  }
  return entries;
}

Mlp::Mlp(DenseParameters& parameters, const std::string& prefix, const std::vector<std::int64_t>& sizes, bool sigmoid)
    : sigmoid_(sigmoid) {
  const auto names = entries(prefix, sizes);
  for (std::size_t i = 0; i < names.size(); i += 2) {
    auto &weight = parameters.find(names[i].name), &bias = parameters.find(names[i + 1].name);
    layers_.push_back({weight.value, bias.value, weight.gradient, bias.gradient});
  }
}

at::Tensor Mlp::apply(std::size_t layer, const at::Tensor& input) const {
  auto output = at::addmm(layers_[layer].bias, input, layers_[layer].weight.t());
  if (sigmoid_ && layer + 1 == layers_.size()) return output.sigmoid_();
  return output.relu_();
}

at::Tensor Mlp::forward(const at::Tensor& input) {
  kept_ = {input};
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) kept_.push_back(apply(layer, kept_.back()));
  return kept_.back();
}

at::Tensor Mlp::infer(const at::Tensor& input) const {
  auto output = input;
  for (std::size_t layer = 0; layer < layers_.size(); ++layer) output = apply(layer, output);
  return output;
}

at::Tensor Mlp::backward(const at::Tensor& output_gradient, bool input_gradient) {
  auto gradient = output_gradient;
  for (std::size_t layer = layers_.size(); layer-- > 0;) {
    auto& [weight, bias, weight_gradient, bias_gradient] = layers_[layer];
    const bool sigmoid = sigmoid_ && layer + 1 == layers_.size();
    gradient = sigmoid ? at::sigmoid_backward(gradient, kept_[layer + 1])
                       : at::threshold_backward(gradient, kept_[layer + 1], 0);
    at::mm_out(weight_gradient, gradient.t(), kept_[layer]);
    at::sum_out(bias_gradient, gradient, {0});
    if (layer > 0 || input_gradient) gradient = gradient.mm(weight);
  }
  kept_.clear();
  return input_gradient ? gradient : at::Tensor();
}

}  // namespace tutti::dlrm
