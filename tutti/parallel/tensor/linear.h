#pragma once
// Linear layers whose weight is divided among the ranks of a tensor group (Megatron-LM, Shoeybi et al., 2019). By
// columns, each rank computes some of the output features from the whole input. By rows, each rank takes some of the
// input features, and the results are added up. A column layer followed by a row layer needs one all_reduce forward
// (after the row layer, g) and one backward (before the column layer, f), whatever elementwise operations are between
// them.
//
//   ColumnParallelLinear up(tp, {.in_features = h, .out_features = 4 * h, .initial = InitialWeights::normal(s1)});
//   RowParallelLinear down(tp, {.in_features = 4 * h, .out_features = h, .initial = InitialWeights::normal(s2)});
//   at::Tensor y = down(at::gelu(up(x)));                    // x and y: [seq, batch, h], the same on all ranks
//
// With sequence_parallel (Korthikanti et al., 2022) x and y have the rows (dimension 0) of this rank only, seq / size()
// of them: the column layer gathers them, the row layer scatters the sum. The number of bytes sent is the same. What is
// between two such pairs (norms, dropout, residuals) is computed and kept once and not on every rank.
//
// All ranks compute one loss, each the same (or, with sequence_parallel, each its rows of it). Every rank makes the
// same calls in the same order, forward and backward. Inputs: [..., features] of any floating type, with
// sequence_parallel of at least two dimensions. Nothing but the input (with sequence_parallel: of its own rows) and the
// weight is kept for backward. The gradient of a column layer's weight is computed while that of its input is reduced.
// With a WeightGradients::Scope (tensor/weight_gradients.h) the weight's gradient is deferred, and run() accumulates it
// into .grad; the bias's is computed at once. Weights may be f32 where the input is bf16 or f16: products are
// then made in 16 bits, and gradients of weights added up in f32. There is no second derivative. Wrong shapes throw
// Exception.
#include <torch/nn/module.h>
#include <torch/nn/pimpl.h>

#include <cstdint>
#include <string_view>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/tensor/initial_weights.h"
#include "tutti/parallel/tensor/parameter_layout.h"

namespace tutti {

struct ColumnParallelLinearOptions {
  std::int64_t in_features = 0, out_features = 0;  // of the whole layer
  bool bias = true;
  // Parts of out_features, each divided by itself (ParameterLayout::divide): {f, f} for the gate and the other half of
  // a gated layer, {q, k, v} for attention. This rank's output is its part of the first, of the second, ...
  std::vector<std::int64_t> blocks = {};
  bool gather_output = false;  // every rank gets all output features, in the order of the whole layer
  bool skip_bias_add = false;  // forward() leaves the bias out; who adds it takes it from `bias`
  bool sequence_parallel = false;
  InitialWeights initial = {};  // of the weight; the bias is zero at first
  at::ScalarType dtype = at::kFloat;
};

class ColumnParallelLinearImpl : public torch::nn::Module, public TensorParallelModule {
 public:
  // Group{}: one process. Throws where the features do not divide.
  ColumnParallelLinearImpl(const Group& group, ColumnParallelLinearOptions options);

  // [seq, ..., in_features], with sequence_parallel [seq / size(), ..., in_features], to [seq, ..., out_features /
  // size()], with gather_output [seq, ..., out_features].
  at::Tensor forward(const at::Tensor& input);

  ParameterLayout layout_of(std::string_view name) const override;
  const ColumnParallelLinearOptions& options() const { return options_; }

  at::Tensor weight;  // [out_features / size(), in_features]
  at::Tensor bias;    // [out_features / size()], or undefined

 private:
  Group group_;
  ColumnParallelLinearOptions options_;
};
TORCH_MODULE(ColumnParallelLinear);

struct RowParallelLinearOptions {
  std::int64_t in_features = 0, out_features = 0;  // of the whole layer
  bool bias = true;                                // the whole on every rank, added after the sum
  bool input_is_parallel = true;                   // else forward() takes this rank's features of a whole input
  bool skip_bias_add = false;
  bool sequence_parallel = false;  // the bias's gradient is then partial (ParameterLayout::partial_gradient)
  InitialWeights initial = {};
  at::ScalarType dtype = at::kFloat;
};

class RowParallelLinearImpl : public torch::nn::Module, public TensorParallelModule {
 public:
  RowParallelLinearImpl(const Group& group, RowParallelLinearOptions options);

  // [seq, ..., in_features / size()] to [seq, ..., out_features], with sequence_parallel [seq / size(), ...,
  // out_features].
  at::Tensor forward(const at::Tensor& input);

  ParameterLayout layout_of(std::string_view name) const override;
  const RowParallelLinearOptions& options() const { return options_; }

  at::Tensor weight;  // [out_features, in_features / size()]
  at::Tensor bias;    // [out_features], or undefined

 private:
  Group group_;
  RowParallelLinearOptions options_;
};
TORCH_MODULE(RowParallelLinear);

// The functions, for weights of another module (tied embeddings as output layer). `bias` may be undefined. weight:
// [this rank's outputs, inputs]; [outputs, this rank's inputs].
at::Tensor column_parallel_linear(const Group& group, const at::Tensor& input, const at::Tensor& weight,
                                  const at::Tensor& bias, bool sequence_parallel = false);
at::Tensor row_parallel_linear(const Group& group, const at::Tensor& input, const at::Tensor& weight,
                               const at::Tensor& bias, bool sequence_parallel = false);
// The outputs of all ranks' columns, in the order of the whole layer. `blocks` as in ColumnParallelLinearOptions.
at::Tensor gather_columns(const Group& group, const at::Tensor& mine, const std::vector<std::int64_t>& blocks = {});

}  // namespace tutti
