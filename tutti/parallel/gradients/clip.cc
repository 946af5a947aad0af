#include "tutti/parallel/gradients/clip.h"

#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/parallel/gradients/tensor_math.h"
#include "tutti/parallel/optim/rule_state.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {
namespace {

struct Gradient {
  std::size_t number;  // of the parameter
  const std::string& name;
  at::Tensor tensor;
};

std::vector<Gradient> gradients_of(std::span<const NamedTensor> parameters) {
  std::vector<Gradient> gradients;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const auto& [name, tensor] = parameters[i];
    const auto& gradient = tensor.grad();
    if (!gradient.defined()) continue;
    updated_dtype(gradient, "the gradient of " + name);
    gradients.push_back({i, name, gradient});
  }
  return gradients;
}

}  // namespace

void require_clip_limit(const char* function, const char* name, double value) {
  if (value >= 0) return;
  throw Exception(invalid_argument(
      fmt::format("{}: {} is {}; expected a number that is not negative", function, name, value),
      fmt::format("leave the call out where gradients are not to be clipped, or give infinity, which clips none: {}(0) "
                  "makes all of them zero",
                  function)));
}

double clip_factor(double norm, double max_norm) { return std::min(1.0, max_norm / (norm + 1e-6)); }

GradientNorm gradient_norm(std::span<const NamedTensor> parameters) {
  const GradientFindings findings = gradient_findings(parameters);
  GradientNorm result{.norm = findings.squares.norm(), .non_finite = {}};
  if (const auto found = NonFinite::of(findings.first()))
    result.non_finite = non_finite_gradient(parameters[found->parameter].name);
  else if (!std::isfinite(result.norm))
    result.non_finite = kNormOverflows;
  return result;
}

GradientFindings gradient_findings(std::span<const NamedTensor> parameters, const std::vector<bool>& elsewhere) {
  GradientFindings findings;
  for (const auto& gradient : gradients_of(parameters))
    if (elsewhere.empty() || !elsewhere[gradient.number])
      findings.add(gradient.tensor, {gradient.number, NonFinite::kUnknownRank}, &GradientFindings::squares);
  findings.settle();
  return findings;
}

GradientNorm clip_grad_norm(std::span<const NamedTensor> parameters, double max_norm) {
  require_clip_limit("clip_grad_norm", "max_norm", max_norm);
  const GradientNorm result = gradient_norm(parameters);
  const double factor = clip_factor(result.norm, max_norm);
  if (!result.finite() || factor >= 1) return result;
  for (const auto& gradient : gradients_of(parameters)) scale_tensor(gradient.tensor, factor);
  return result;
}

void clip_grad_value(std::span<const NamedTensor> parameters, double limit) {
  require_clip_limit("clip_grad_value", "limit", limit);
  for (const auto& gradient : gradients_of(parameters)) clamp_tensor(gradient.tensor, limit);
}

GradientNorm clip_grad_norm(const torch::nn::Module& module, double max_norm) {
  return clip_grad_norm(without_repeats(parameters_of(module)), max_norm);
}
void clip_grad_value(const torch::nn::Module& module, double limit) {
  clip_grad_value(without_repeats(parameters_of(module)), limit);
}

}  // namespace tutti
