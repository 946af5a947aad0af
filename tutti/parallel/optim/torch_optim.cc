#include "tutti/parallel/optim/torch_optim.h"

#include <torch/nn/module.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/version.h>

#include <functional>
#include <type_traits>

#include "tutti/parallel/optim/state_part.h"
#include "tutti/tensor/module_state.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {
namespace {

namespace optim = torch::optim;

struct Kept {
  const char* name;
  at::Tensor* tensor;
};

std::vector<Kept> kept_in(optim::SGDParamState& state, const optim::SGDOptions& options) {
  if (options.momentum() == 0) return {};
  return {{"momentum_buffer", &state.momentum_buffer()}};
}

// Adam and AdamW.
template <class State, class Options>
std::vector<Kept> kept_in(State& state, const Options& options) {
  std::vector<Kept> kept = {{"exp_avg", &state.exp_avg()}, {"exp_avg_sq", &state.exp_avg_sq()}};
  if (options.amsgrad()) kept.push_back({"max_exp_avg_sq", &state.max_exp_avg_sq()});
  return kept;
}

std::vector<Kept> kept_in(optim::AdagradParamState& state, const optim::AdagradOptions&) {
  return {{"sum", &state.sum()}};
}

std::vector<Kept> kept_in(optim::RMSpropParamState& state, const optim::RMSpropOptions& options) {
  std::vector<Kept> kept = {{"square_avg", &state.square_avg()}};
  if (options.momentum() > 0) kept.push_back({"momentum_buffer", &state.momentum_buffer()});
  if (options.centered()) kept.push_back({"grad_avg", &state.grad_avg()});
  return kept;
}

// That of a parameter, made if it is not there.
template <class State>
State& state_of(optim::Optimizer& optimizer, const at::Tensor& parameter) {
#if TORCH_VERSION_MAJOR < 2
  auto& state = optimizer.state()[c10::guts::to_string(parameter.unsafeGetTensorImpl())];
#else
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
#endif
  if (!state) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

using Visit = std::function<void(const at::Tensor& parameter, const std::vector<Kept>& kept, std::int64_t step,
                                 std::function<void(std::int64_t)> set_step)>;  // null: it counts no steps

template <class State, class Options>
void visit_all(optim::Optimizer& optimizer, const Visit& visit) {
  for (optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    const auto& options = static_cast<const Options&>(group.options());
    for (const at::Tensor& parameter : group.params()) {
      auto& state = state_of<State>(optimizer, parameter);
      const std::vector<Kept> kept = kept_in(state, options);
      for (const Kept& one : kept)
        if (!one.tensor->defined()) *one.tensor = at::zeros_like(parameter, at::MemoryFormat::Preserve);
      if constexpr (requires { state.step(); }) {
        visit(parameter, kept, state.step(), [&state](std::int64_t step) { state.step(step); });
      } else {
        visit(parameter, kept, 0, nullptr);
      }
    }
  }
}

// Null for optimizers whose state cannot be saved.
void (*visitor_of(const optim::Optimizer& optimizer))(optim::Optimizer&, const Visit&) {
  if (dynamic_cast<const optim::SGD*>(&optimizer)) return &visit_all<optim::SGDParamState, optim::SGDOptions>;
  if (dynamic_cast<const optim::Adam*>(&optimizer)) return &visit_all<optim::AdamParamState, optim::AdamOptions>;
  if (dynamic_cast<const optim::AdamW*>(&optimizer)) return &visit_all<optim::AdamWParamState, optim::AdamWOptions>;
  if (dynamic_cast<const optim::Adagrad*>(&optimizer))
    return &visit_all<optim::AdagradParamState, optim::AdagradOptions>;
  if (dynamic_cast<const optim::RMSprop*>(&optimizer))
    return &visit_all<optim::RMSpropParamState, optim::RMSpropOptions>;
  return nullptr;
}

}  // namespace

TorchOptim::TorchOptim(const torch::nn::Module& module, optim::Optimizer& optimizer) : optimizer_(optimizer) {
  if (!visitor_of(optimizer))
    throw Exception(Error{.code = Code::kUnsupported,
                          .detail = "TorchOptim: this optimizer of torch::optim cannot be saved",
                          .hint = "SGD, Adam, AdamW, Adagrad and RMSprop can"});
  for (const NamedTensor& parameter : parameters_of(module))
    names_.emplace(parameter.tensor.unsafeGetTensorImpl(), parameter.name);
  const bool is_sgd = dynamic_cast<const optim::SGD*>(&optimizer) != nullptr;
  std::size_t number = 0;
  for (optim::OptimizerParamGroup& group : optimizer.param_groups()) {
    if (is_sgd && static_cast<const optim::SGDOptions&>(group.options()).dampening() != 0)
      throw Exception(Error{.code = Code::kUnsupported,
                            .detail = "TorchOptim: SGD with a dampening cannot be saved, since its first step differs",
                            .hint = "tutti::Sgd with SgdOptions::dampening can"});
    for (const at::Tensor& parameter : group.params()) {
      if (!names_.contains(parameter.unsafeGetTensorImpl()))
        throw Exception(Error{
            .code = Code::kInvalidArgument,
            .detail = "TorchOptim: parameter " + std::to_string(number) + " of the optimizer is none of the module",
            .hint = "give the module whose parameters() the optimizer steps; with FullySharded use a "
                    "ShardedOptimizer"});
      ++number;
    }
  }
  steps_.resize(number);
}

void TorchOptim::state(StateDict& dict) {
  std::vector<StatePart> steps;
  std::vector<std::function<void()>> loaded;
  std::size_t number = 0;
  const auto visit = [&](const at::Tensor& parameter, const std::vector<Kept>& kept, std::int64_t step,
                         std::function<void(std::int64_t)> set_step) {
    const std::string& name = names_.at(parameter.unsafeGetTensorImpl());
    for (const Kept& one : kept) dict.tensor(state_box({name, one.name}, *one.tensor));
    at::Tensor& counter = steps_[number++];
    if (!set_step) return;
    counter = at::full({1}, step, at::kLong);
    steps.push_back({.parameter = name, .state = "step", .values = counter});
    loaded.push_back([counter, set = std::move(set_step)] { set(counter.item<std::int64_t>()); });
  };
  visitor_of(optimizer_)(optimizer_, visit);
  add_state(dict, steps);
  if (!dict.loading() || dict.weights_only()) return;
  dict.after_load([loaded = std::move(loaded)](const CheckpointReader&) {
    for (const auto& act : loaded) act();
    return Status();
  });
}

}  // namespace tutti
