#include "tutti/parallel/optim/torch_optim.h"

#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/version.h>

#include <functional>

#include "tutti/parallel/optim/shard_place.h"
#include "tutti/parallel/optim/state_part.h"
#include "tutti/tensor/module_state.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {
namespace {

namespace optim = torch::optim;

struct Kept {
  const char* name;
  at::Tensor* tensor;
  double initial = 0;
};

// What a rule keeps for each parameter.
std::vector<Kept> kept_in(optim::SGDParamState& state, const optim::SGDOptions&) {
  return {{"momentum_buffer", &state.momentum_buffer()}};
}

// Adam and AdamW.
template <class State, class Options>
std::vector<Kept> kept_in(State& state, const Options& options) {
  std::vector<Kept> kept = {{"exp_avg", &state.exp_avg()}, {"exp_avg_sq", &state.exp_avg_sq()}};
  if (options.amsgrad()) kept.push_back({"max_exp_avg_sq", &state.max_exp_avg_sq()});
  return kept;
}

std::vector<Kept> kept_in(optim::AdagradParamState& state, const optim::AdagradOptions& options) {
  return {{"sum", &state.sum(), options.initial_accumulator_value()}};
}

std::vector<Kept> kept_in(optim::RMSpropParamState& state, const optim::RMSpropOptions& options) {
  std::vector<Kept> kept = {{"square_avg", &state.square_avg()}};
  if (options.momentum() > 0) kept.push_back({"momentum_buffer", &state.momentum_buffer()});
  if (options.centered()) kept.push_back({"grad_avg", &state.grad_avg()});
  return kept;
}

// LibTorch knows parameters by their address, and before version 2 by its text.
auto& state_of(optim::Optimizer& optimizer, const at::Tensor& parameter) {
#if TORCH_VERSION_MAJOR < 2
  return optimizer.state()[c10::guts::to_string(parameter.unsafeGetTensorImpl())];
#else
  return optimizer.state()[parameter.unsafeGetTensorImpl()];
#endif
}

Error refused(Code code, std::string detail, std::string hint) {
  return {.code = code, .detail = "TorchOptim: " + std::move(detail), .hint = std::move(hint)};
}

}  // namespace

struct TorchOptim::Parameter {
  std::string name;
  std::shared_ptr<const ShardPlace> place;  // null: every rank has all of it
  std::vector<Kept> kept;
  std::int64_t step = 0;
  std::function<void(std::int64_t)> set_step;  // empty: the rule counts no steps
};

namespace {

template <class State, class Options>
void add_kept(optim::Optimizer& optimizer, const at::Tensor& tensor, const optim::OptimizerOptions& any_options,
              auto& parameter) {
  const auto& options = static_cast<const Options&>(any_options);
  if constexpr (std::is_same_v<Options, optim::SGDOptions>) {
    if (options.momentum() == 0) return;
    if (options.dampening() != 0)
      throw Exception(refused(Code::kUnsupported, "SGD with a dampening cannot be saved, since its first step differs",
                              "tutti::Sgd with SgdOptions::dampening can"));
  }
  auto& made = state_of(optimizer, tensor);
  if (!made) made = std::make_unique<State>();
  auto& state = static_cast<State&>(*made);
  parameter.kept = kept_in(state, options);
  for (const Kept& one : parameter.kept)
    if (!one.tensor->defined()) *one.tensor = at::full_like(tensor.detach(), one.initial);
  if constexpr (requires { state.step(); }) {
    parameter.step = state.step();
    parameter.set_step = [&state](std::int64_t step) { state.step(step); };
  }
}

}  // namespace

std::vector<TorchOptim::Parameter> TorchOptim::parameters() const {
  auto* add = &add_kept<optim::AdamParamState, optim::AdamOptions, Parameter>;
  if (dynamic_cast<const optim::SGD*>(&optimizer_)) {
    add = &add_kept<optim::SGDParamState, optim::SGDOptions, Parameter>;
  } else if (dynamic_cast<const optim::AdamW*>(&optimizer_)) {
    add = &add_kept<optim::AdamWParamState, optim::AdamWOptions, Parameter>;
  } else if (dynamic_cast<const optim::Adagrad*>(&optimizer_)) {
    add = &add_kept<optim::AdagradParamState, optim::AdagradOptions, Parameter>;
  } else if (dynamic_cast<const optim::RMSprop*>(&optimizer_)) {
    add = &add_kept<optim::RMSpropParamState, optim::RMSpropOptions, Parameter>;
  } else if (!dynamic_cast<const optim::Adam*>(&optimizer_)) {
    throw Exception(refused(Code::kUnsupported, "this optimizer of torch::optim cannot be saved",
                            "SGD, Adam, AdamW, Adagrad and RMSprop can"));
  }
  std::vector<Parameter> parameters;
  for (optim::OptimizerParamGroup& group : optimizer_.param_groups()) {
    for (const at::Tensor& tensor : group.params()) {
      const auto name = names_.find(tensor.unsafeGetTensorImpl());
      const auto shard = shards_.find(tensor.unsafeGetTensorImpl());
      if (name == names_.end() && shard == shards_.end())
        throw Exception(refused(
            Code::kInvalidArgument,
            "parameter " + std::to_string(parameters.size()) + " of the optimizer does not belong to the module",
            "give the module whose parameters() the optimizer steps"));
      Parameter& parameter = parameters.emplace_back();
      if (shard != shards_.end()) parameter.place = shard->second;
      parameter.name = parameter.place ? parameter.place->parameter : name->second;
      add(optimizer_, tensor, group.options(), parameter);
    }
  }
  return parameters;
}

TorchOptim::TorchOptim(const torch::nn::Module& module, torch::optim::Optimizer& optimizer) : optimizer_(optimizer) {
  for (const NamedTensor& parameter : parameters_of(module))
    names_.emplace(parameter.tensor.unsafeGetTensorImpl(), parameter.name);
  for (const optim::OptimizerParamGroup& group : optimizer.param_groups())
    for (const at::Tensor& tensor : group.params())
      if (auto place = shard_place(tensor)) shards_.emplace(tensor.unsafeGetTensorImpl(), std::move(place));
  (void)parameters();  // so that an optimizer that cannot be saved is an error here
}

void TorchOptim::state(StateDict& dict) {
  steps_.clear();
  std::vector<StatePart> parts;
  std::vector<std::function<void()>> loaded;
  for (Parameter& parameter : parameters()) {
    for (const Kept& one : parameter.kept) {
      if (!parameter.place) {
        dict.tensor(state_box({parameter.name, one.name}, *one.tensor));
        continue;
      }
      if (!parameter.place->whole.is_contiguous())
        throw Exception(refused(Code::kUnsupported, "parameter " + parameter.name + " is sharded and not contiguous",
                                "use tensor.contiguous() before FullySharded is made"));
      parts.push_back({.parameter = parameter.name,
                       .state = one.name,
                       .shape = parameter.place->whole.sizes().vec(),
                       .begin = parameter.place->run.begin,
                       .values = *one.tensor});
    }
    const at::Tensor& step = steps_.emplace_back(at::full({1}, parameter.step, at::kLong));
    if (!parameter.set_step) {
      dict.optional_tensor(state_box({parameter.name, "step"}, step.view({})));
      continue;
    }
    parts.push_back({.parameter = parameter.name, .state = "step", .values = step});
    loaded.push_back([step, set = std::move(parameter.set_step)] { set(step.item<std::int64_t>()); });
  }
  add_state(dict, parts);
  if (!dict.loading() || dict.weights_only()) return;
  dict.after_load([loaded = std::move(loaded)](const CheckpointReader&) {
    for (const auto& act : loaded) act();
    return Status();
  });
}

}  // namespace tutti
