#pragma once
// The MLPs of the model, and all of it that every rank has whole, as ordinary modules.
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "tutti/models/dlrm/architecture.h"

namespace tutti::dlrm {

// Layers of y = relu(x W^T + b), the last one with a sigmoid instead if asked for. Parameters have the names of
// torch::nn::Sequential(Linear, ReLU, Linear, ...): "0.weight", "0.bias", "2.weight", ...
//
// All layers are one node of the graph, which is what the regions of a profile need. It is as fast as a Sequential:
// forward and backward of both MLPs of bench/compare_dlrm, 1,024 samples on one thread, take 2.79 ms (Sequential 2.84)
// with the shapes "tables", and 257 ms (260) with the shapes "mlps".
class Mlp : public torch::nn::Module {
 public:
  // Names of its regions in profiles, as literals.
  struct Labels {
    const char *forward, *backward;
  };
  Mlp(const std::vector<std::int64_t>& sizes, bool sigmoid, Labels labels);

  // [samples, in] to [samples, out]. There is no second derivative.
  at::Tensor forward(const at::Tensor& input);

  const std::vector<torch::nn::Linear>& layers() const { return layers_; }
  bool sigmoid() const { return sigmoid_; }

 private:
  std::vector<torch::nn::Linear> layers_;
  bool sigmoid_;
  Labels labels_;
};

// "bot_l", "top_l" and "emb_l.3.proj" (of features that are projected), as in dlrm_s_pytorch.py. Weights are zero.
class DenseHalf : public torch::nn::Module {
 public:
  DenseHalf(const Architecture& architecture, at::ScalarType type);

  // top(interact(bottom(dense)))
  at::Tensor forward(const at::Tensor& dense, const std::function<at::Tensor(const at::Tensor& x)>& interact);

  const std::shared_ptr<Mlp>& bottom() const { return bottom_; }
  const std::shared_ptr<Mlp>& top() const { return top_; }
  // By feature, [dim, columns of its table]; undefined where there is none.
  const std::vector<at::Tensor>& projections() const { return projections_; }

 private:
  std::shared_ptr<Mlp> bottom_, top_;
  std::vector<at::Tensor> projections_;
};

}  // namespace tutti::dlrm
