#pragma once
// Activations that are recomputed in place of being kept (Chen et al. 2016, arXiv:1604.06174; torch's
// utils.checkpoint). Only the inputs of the function are kept. Backward runs the function again, and then backward
// through it.
//
//   at::Tensor y = recompute([&](const at::Tensor& x) { return block->forward(x); }, x);
#include <functional>
#include <span>
#include <vector>

namespace at {
class Tensor;
}

namespace tutti {

using TensorFunction = std::function<at::Tensor(const at::Tensor& input)>;
using TensorsFunction = std::function<std::vector<at::Tensor>(const std::vector<at::Tensor>& inputs)>;

// function(input), whose parameters get their gradients as usual. The second run sees LibTorch's default generators
// (of the CPU and of the input's device) and Autocast as the first run did, and afterwards both are restored: dropout
// drops the same elements. What else the function reads must be the same until backward. `function` is kept until then.
// Gradients go to .grad (backward()); torch::autograd::grad() of the parameters inside is not supported. There is no
// second derivative. If gradients are off, this is function(input).
at::Tensor recompute(const TensorFunction& function, const at::Tensor& input);
std::vector<at::Tensor> recompute(const TensorsFunction& function, const std::vector<at::Tensor>& inputs);

// Megatron-LM's --recompute-method with --recompute-granularity full.
enum class RecomputeMethod {
  kNone,
  kUniform,  // every `layers` layers together: only the input of each such run is kept
  kBlock,    // the first `layers` layers, each for itself; the others keep all
};
struct RecomputeOptions {
  RecomputeMethod method = RecomputeMethod::kNone;
  int layers = 1;  // --recompute-num-layers: 1 or more; kBlock: at most as many as there are in a chunk, more are all
};

// The layers one after another, recomputed as the options say.
at::Tensor run_layers(std::span<const TensorFunction> layers, const at::Tensor& input,
                      const RecomputeOptions& options = {});

}  // namespace tutti
