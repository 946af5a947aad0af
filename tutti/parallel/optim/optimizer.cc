// The step is bound by memory: Adam moves 28 bytes an element in one pass, where torch::optim's eight passes move 100.
#include "tutti/parallel/optim/optimizer.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "tutti/base/error.h"
#include "tutti/comm/stream_calls.h"
#include "tutti/parallel/gradients/tensor_math.h"
#include "tutti/parallel/optim/matrix_rule.h"
#include "tutti/parallel/optim/rule_state.h"
#include "tutti/parallel/optim/shard_place.h"
#include "tutti/parallel/tensor/parameter_layout.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

constexpr double kNoLimit = std::numeric_limits<double>::infinity();

std::vector<NamedTensor> numbered(std::vector<at::Tensor> tensors) {
  std::vector<NamedTensor> named;
  for (auto& tensor : without_repeats(std::move(tensors))) {
    const auto place = shard_place(tensor);
    if (place)
      for (const auto& other : named)
        TUTTI_REQUIRE(other.name != place->parameter, "two shards are of a parameter named ", place->parameter,
                      "; make an optimizer for each model");
    named.push_back({place ? place->parameter : std::to_string(named.size()), std::move(tensor)});
  }
  return named;
}

std::vector<NamedTensor> trained(const torch::nn::Module& module) {
  auto parameters = parameters_of(module);
  std::erase_if(parameters, [](const NamedTensor& parameter) { return !parameter.tensor.requires_grad(); });
  return parameters;
}

std::vector<std::string> names_in(const std::vector<NamedTensor>& parameters) {
  std::vector<std::string> names;
  for (const auto& parameter : parameters) names.push_back(parameter.name);
  return names;
}

}  // namespace

Optimizer::Optimizer(std::vector<NamedTensor> parameters, UpdateRule rule, std::vector<ParameterGroup> groups)
    : parameters_(without_repeats(std::move(parameters))),
      rules_(std::move(rule), std::move(groups), names_in(parameters_)),
      states_(parameters_.size()),
      scale_(1),
      limit_(kNoLimit) {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    places_.push_back(shard_place(parameters_[i].tensor));
    updated_dtype(parameters_[i].tensor, std::string(name(rules_.of(i))) + ": parameter " + parameters_[i].name);
    require_matrix(rules_.of(i), parameters_[i].name, parameters_[i].tensor);
  }
}
Optimizer::Optimizer(const torch::nn::Module& module, UpdateRule rule, std::vector<ParameterGroup> groups)
    : Optimizer(trained(module), std::move(rule), std::move(groups)) {
  std::unordered_set<std::string> divided;
  for (const auto& placed : placed_parameters(module))
    if (placed.layout.divided()) divided.insert(placed.name);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (divided.contains(parameters_[i].name)) require_whole(rules_.of(i), parameters_[i].name, parameters_[i].tensor);
}
Optimizer::Optimizer(std::vector<at::Tensor> parameters, UpdateRule rule, std::vector<ParameterGroup> groups)
    : Optimizer(numbered(std::move(parameters)), std::move(rule), std::move(groups)) {}
Optimizer::~Optimizer() = default;
Optimizer::Optimizer(Optimizer&&) noexcept = default;
Optimizer& Optimizer::operator=(Optimizer&&) noexcept = default;

void Optimizer::step() {
  const at::NoGradGuard no_grad;
  await_stream_calls().or_throw();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const at::Tensor weight = parameters_[i].tensor.detach();
    at::Tensor gradient = parameters_[i].tensor.grad();
    if (!gradient.defined()) continue;
    TUTTI_REQUIRE(gradient.layout() == at::kStrided && gradient.scalar_type() == weight.scalar_type() &&
                      gradient.device() == weight.device() && gradient.sizes() == weight.sizes(),
                  name(rules_.of(i)), ": the gradient of parameter ", parameters_[i].name, " is ",
                  gradient.layout() == at::kStrided ? "" : "sparse, ", describe(gradient), "; the parameter is ",
                  describe(weight));
    if (gradient.strides() != weight.strides()) gradient = at::empty_like(weight).copy_(gradient);
    states_[i].prepare(rules_.of(i), weight.numel(), weight);
    if (needs_matrix(rules_.of(i))) {
      update_matrix(rules_.of(i), weight, gradient, states_[i], scale_, limit_);
    } else {
      Update update = states_[i].next_update(rules_.of(i));
      update.scale = scale_;
      update.limit = limit_;
      update_tensor(update, weight, gradient, states_[i].tensors);
    }
  }
  scale_ = 1;
  limit_ = kNoLimit;
}

const Group* Optimizer::ranks_of_shards() const {
  if (std::all_of(places_.begin(), places_.end(), [](const auto& place) { return !place; })) return nullptr;
  const auto& first = places_.front();
  for (std::size_t i = 0; i < places_.size(); ++i)
    TUTTI_REQUIRE(first && places_[i] && places_[i]->ranks.name() == first->ranks.name(), "clip_grad_norm: parameters ",
                  parameters_[0].name, " and ", parameters_[i].name,
                  " of one optimizer are not split over the same ranks; clip the gradients of each model by itself");
  return &first->ranks;
}

GradientNorm Optimizer::clip_grad_norm(double max_norm) {
  require_clip_limit("clip_grad_norm", "max_norm", max_norm);
  const Group* const ranks = ranks_of_shards();
  const GradientNorm result = [&] {
    if (!ranks) return gradient_norm(parameters_);
    GradientFindings findings = gradient_findings(parameters_);
    return norm_over_ranks(*ranks, {}, findings,
                           [&](std::size_t i) -> const std::string& { return parameters_[i].name; });
  }();
  scale_ = result.finite() ? clip_factor(result.norm, max_norm) : 1;
  return result;
}

void Optimizer::clip_grad_value(double limit) {
  require_clip_limit("clip_grad_value", "limit", limit);
  limit_ = limit;
}

std::size_t Optimizer::state_bytes() const {
  std::size_t bytes = 0;
  for (const auto& state : states_) bytes += state.bytes();
  return bytes;
}

std::vector<StatePart> Optimizer::own_state() {
  std::vector<StatePart> parts;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const auto& [name, tensor] = parameters_[i];
    states_[i].prepare(rules_.of(i), tensor.numel(), tensor);
    const auto& place = places_[i];
    append_parts(parts, states_[i], rules_.of(i), name, place ? place->whole : tensor,
                 {place ? place->run : Run{.begin = 0, .count = tensor.numel()}});
  }
  return parts;
}

void Optimizer::zero_grad() {
  for (auto& parameter : parameters_) parameter.tensor.mutable_grad() = at::Tensor();
  scale_ = 1;  // of gradients that are gone
  limit_ = kNoLimit;
}

}  // namespace tutti
