// One autograd node for all that runs inside. Forward runs the function without a graph; backward runs it again with
// one, on fresh leaves in place of the inputs, and calls the engine on that graph: it goes through the parameters,
// which get their gradients then and there, and the leaves' gradients are those of the inputs.
//
// The engine that is called within backward runs on the same thread, so that what belongs to a thread counts inside
// too.
#include "tutti/parallel/recompute.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/parallel/data_parallel/precision/mixed_precision.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/tensor/autograd_node.h"

namespace tutti {
namespace {

using autograd::AutogradContext;
using autograd::variable_list;

// The state of a device's default generator.
struct RandomState {
  at::Device device;
  at::Tensor state;
};

at::Generator generator_of(at::Device device) {
  return device.is_cpu() ? at::detail::getDefaultCPUGenerator() : at::globalContext().defaultGenerator(device);
}
RandomState random_state(at::Device device) {
  at::Generator generator = generator_of(device);
  const std::lock_guard lock(generator.mutex());
  return {device, generator.get_state()};
}
void set_random_state(const RandomState& random) {
  at::Generator generator = generator_of(random.device);
  const std::lock_guard lock(generator.mutex());
  generator.set_state(random.state);
}

// While this object exists, default generators continue from earlier states.
class RandomAgain {
 public:
  explicit RandomAgain(const std::vector<RandomState>& states) {
    for (const RandomState& state : states) now_.push_back(random_state(state.device));
    for (const RandomState& state : states) set_random_state(state);
  }
  ~RandomAgain() {
    for (const RandomState& state : now_) set_random_state(state);
  }
  RandomAgain(const RandomAgain&) = delete;
  RandomAgain& operator=(const RandomAgain&) = delete;

 private:
  std::vector<RandomState> now_;
};

struct Replay {
  TensorsFunction function;
  std::vector<bool> requires_grad;  // of the inputs
  std::vector<RandomState> random;  // before: of the CPU and of the devices of the inputs
  AutocastSettings autocast;
  fully_sharded::ForwardPass sharded;
};

variable_list run_again(const Replay& replay, const variable_list& inputs) {
  const c10::AutoGradMode on(true);
  const RandomAgain random(replay.random);
  const Autocast precision(replay.autocast);
  const fully_sharded::ForwardAgain sharded(replay.sharded);
  return replay.function(inputs);
}

// Anchored: else a first layer, whose input is data, would have no node, and its parameters no gradients.
struct RecomputeNode {
  static constexpr const char* kName = "recompute";
  static constexpr bool kAnchored = true;
  using State = Replay;

  static variable_list forward(AutogradContext* context, const Replay& replay, at::TensorList inputs) {
    context->save_for_backward(inputs.vec());
    variable_list outputs = replay.function(inputs.vec());
    // An output that is an input, or a view of one, would be taken for that tensor changed in place.
    for (at::Tensor& output : outputs)
      if (std::any_of(inputs.begin(), inputs.end(), [&](const at::Tensor& input) { return output.is_alias_of(input); }))
        output = output.clone();
    return outputs;
  }

  static variable_list backward(AutogradContext* context, const Replay& replay, const variable_list& gradients) {
    variable_list leaves = context->get_saved_variables();
    for (std::size_t i = 0; i < leaves.size(); ++i) {
      leaves[i] = leaves[i].detach();
      if (replay.requires_grad[i]) leaves[i].requires_grad_();
    }
    const variable_list outputs = run_again(replay, leaves);
    TUTTI_REQUIRE(outputs.size() == gradients.size(), "recompute: the function returned ", gradients.size(),
                  " tensors at first, and ", outputs.size(), " when it ran again");
    torch::autograd::edge_list roots;
    variable_list root_gradients;
    for (std::size_t i = 0; i < outputs.size(); ++i) {
      if (!outputs[i].requires_grad() || !gradients[i].defined()) continue;
      roots.push_back(torch::autograd::impl::gradient_edge(outputs[i]));
      root_gradients.push_back(gradients[i]);
    }
    if (!roots.empty())
      torch::autograd::Engine::get_default_engine().execute(roots, root_gradients, /*keep_graph=*/false,
                                                            /*create_graph=*/false, /*accumulate_grad=*/true);
    variable_list results;
    for (const at::Tensor& leaf : leaves) results.push_back(leaf.grad());
    return results;
  }
};

}  // namespace

std::vector<at::Tensor> recompute(const TensorsFunction& function, const std::vector<at::Tensor>& inputs) {
  if (!c10::GradMode::is_enabled()) return function(inputs);
  Replay replay{.function = function,
                .random = {random_state(at::kCPU)},
                .autocast = autocast_now(),
                .sharded = fully_sharded::current_forward()};
  for (const at::Tensor& input : inputs) {
    TUTTI_REQUIRE(input.defined(), "recompute: an input is undefined");
    replay.requires_grad.push_back(input.requires_grad());
    if (std::none_of(replay.random.begin(), replay.random.end(),
                     [&](const RandomState& known) { return known.device == input.device(); }))
      replay.random.push_back(random_state(input.device()));
  }
  return autograd::apply_node<RecomputeNode>(std::move(replay), at::TensorList(inputs));
}

at::Tensor recompute(const TensorFunction& function, const at::Tensor& input) {
  return recompute([function](const std::vector<at::Tensor>& inputs) { return std::vector{function(inputs[0])}; },
                   std::vector{input})[0];
}

at::Tensor run_layers(std::span<const TensorFunction> layers, const at::Tensor& input,
                      const RecomputeOptions& options) {
  TUTTI_REQUIRE(options.layers >= 1, "recompute: ", options.layers, " layers at a time, expected 1 or more");
  const std::size_t count = layers.size(), step = std::size_t(options.layers);
  at::Tensor x = input;
  for (std::size_t i = 0; i < count;) {
    const bool again =
        options.method == RecomputeMethod::kUniform || (options.method == RecomputeMethod::kBlock && i < step);
    const std::size_t end = options.method == RecomputeMethod::kUniform ? std::min(i + step, count) : i + 1;
    const std::vector<TensorFunction> run(layers.begin() + std::ptrdiff_t(i), layers.begin() + std::ptrdiff_t(end));
    const TensorFunction all = [run](const at::Tensor& from) {
      at::Tensor y = from;
      for (const TensorFunction& layer : run) y = layer(y);
      return y;
    };
    x = again ? recompute(all, x) : all(x);
    i = end;
  }
  return x;
}

}  // namespace tutti
