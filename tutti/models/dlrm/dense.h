#pragma once
// The part of the model that every rank has whole: weights in one flat tensor, their gradients in another, so that one
// all_reduce and one step serve all of them; and the MLPs, whose forward and backward are written out. Nothing here
// uses autograd: gradients are matrix products that go straight to their place in the flat tensor.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/models/dlrm/options.h"

namespace tutti::dlrm {

class DenseParameters {
 public:
  struct Entry {
    std::string name;  // as Python's state_dict() has it: "bot_l.0.weight"
    std::vector<std::int64_t> shape;
    at::Tensor value, gradient, square;  // windows into the flat tensors; square: Adagrad's sums, undefined with SGD
  };

  // `entries`: name and shape. All values and gradients are zero.
  DenseParameters(at::ScalarType type, OptimizerKind optimizer, std::vector<Entry> entries);

  std::vector<Entry>& entries() { return entries_; }
  const std::vector<Entry>& entries() const { return entries_; }
  Entry& find(const std::string& name);
  const at::Tensor& values() const { return values_; }
  const at::Tensor& gradients() const { return gradients_; }
  // SGD, or torch.optim.Adagrad without decay (which is what row-wise Adagrad does to weights that are not rows).
  void step(double learning_rate);

 private:
  std::vector<Entry> entries_;
  at::Tensor values_, gradients_, squares_;
};

// Layers of y = relu(x W^T + b), the last one with a sigmoid instead if asked for.
class Mlp {
 public:
  // `prefix`: "bot_l" or "top_l"; the weights are entries of `parameters`, which has to outlive this.
  Mlp(DenseParameters& parameters, const std::string& prefix, const std::vector<std::int64_t>& sizes, bool sigmoid);
  // Entries for such an MLP.
  static std::vector<DenseParameters::Entry> entries(const std::string& prefix, const std::vector<std::int64_t>& sizes);

  // [samples, in] to [samples, out]; keeps what backward() needs.
  at::Tensor forward(const at::Tensor& input);
  // Writes the gradients of weights and biases to their places, and returns that of the input (undefined unless asked
  // for). Once after each forward().
  at::Tensor backward(const at::Tensor& output_gradient, bool input_gradient);
  // The same as forward() with nothing kept.
  at::Tensor infer(const at::Tensor& input) const;

  std::size_t layers() const { return layers_.size(); }
  const at::Tensor& weight(std::size_t layer) const { return layers_[layer].weight; }
  const at::Tensor& bias(std::size_t layer) const { return layers_[layer].bias; }
  bool sigmoid() const { return sigmoid_; }

 private:
  struct Layer {
    at::Tensor weight, bias, weight_gradient, bias_gradient;
  };
  at::Tensor apply(std::size_t layer, const at::Tensor& input) const;

  std::vector<Layer> layers_;
  bool sigmoid_;
  std::vector<at::Tensor> kept_;  // the input, then the output of each layer
};

}  // namespace tutti::dlrm
