#pragma once
// What the parts of a transformer's layer are built from, and the base class of these parts. A new attention, MLP or
// arrangement of the two derives from TransformerModule; block_spec.h puts it into a model.
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/models/transformer/parallel.h"
#include "tutti/models/transformer/rotary.h"
#include "tutti/parallel/tensor/linear.h"
#include "tutti/parallel/tensor/sequence.h"
#include "tutti/planning/transformer_config.h"

namespace tutti {

// What layers know of the micro batch that they compute.
struct ForwardContext {
  std::int64_t step = 0, micro_batch = 0;  // decide, with the layer, what dropout drops
  at::Tensor positions;   // i64 [rows of LayerContext::sequence, batch], or [those rows, 1] for all samples
  at::Tensor first_seen;  // AttentionOptions::first_seen
};

// What a layer is built from. A value: a layer keeps its copy.
struct LayerContext {
  TransformerConfig config;
  Parallel parallel;
  int number = 0;                           // of the layer in the whole model
  SequencePart sequence;                    // positions that attention has on this context rank
  SequencePart rows;                        // positions of all else: with sequence parallelism a part of `sequence`
  std::shared_ptr<RotaryPositions> rotary;  // of the model; never null

  // Linear layers as Megatron-LM divides them over the tensor group. Activations are [rows, batch, features]. `name`:
  // of the parameter's module below the layer, "mlp.linear_fc1". The first weights depend on the seed and the name.
  // The column layer takes `hidden` features, each rank computes its part of each of `blocks` (ColumnParallelLinear).
  // `bias`: by default that of the config.
  ColumnParallelLinear column_linear(std::string_view name, std::int64_t out_features,
                                     std::vector<std::int64_t> blocks = {}, std::optional<bool> bias = {}) const;
  // The row layer takes this rank's part of `in_features` and returns `hidden`. Its result is added to the residual, so
  // its weights begin smaller, the deeper the model is (Radford et al. 2019).
  RowParallelLinear row_linear(std::string_view name, std::int64_t in_features) const;
};

// A part of a layer, or a layer: attention, an MLP, a block of both.
class TransformerModule : public torch::nn::Module {
 public:
  explicit TransformerModule(LayerContext layer) : layer_(std::move(layer)) {}
  // x and the result: [rows, batch, hidden].
  virtual at::Tensor forward(const at::Tensor& x, const ForwardContext& context) = 0;

 protected:
  const LayerContext& layer() const { return layer_; }
  const TransformerConfig& config() const { return layer_.config; }
  // The seed of the layer's dropout number `which`: 0 is that of attention, 1 and 2 of the residual.
  std::uint64_t dropout_seed(const ForwardContext& context, int which) const;
  // TransformerConfig::hidden_dropout of [rows, batch, hidden] while training. The mask does not depend on the grid.
  at::Tensor hidden_dropout(const at::Tensor& x, const ForwardContext& context, int which) const;

 private:
  LayerContext layer_;
};

// LayerNorm or RMSNorm over the last dimension.
class Norm : public torch::nn::Module, public TensorParallelModule {
 public:
  Norm(const TransformerConfig& config, const Parallel& parallel);
  at::Tensor forward(const at::Tensor& x);
  ParameterLayout layout_of(std::string_view name) const override;

 private:
  NormKind kind_;
  double epsilon_;
  std::int64_t hidden_;
  bool partial_;  // with sequence parallelism a rank's gradient is that of its rows
  at::Tensor weight_, bias_;
};

namespace transformer {

// A submodule that only has others: "mlp" in "mlp.linear_fc1".
struct Scope : torch::nn::Module {};

// Of weights and of activations between stages.
at::ScalarType dtype_of(const TransformerConfig& config);
// As linear layers take their input: in 16 bits with kBF16 and kF16, else unchanged. The gradient has the type of `x`.
at::Tensor for_product(const TransformerConfig& config, const at::Tensor& x);
// The first values of a parameter, by its name in the whole model.
InitialWeights initial_weights(const TransformerConfig& config, const std::string& name, double deviation);
std::uint64_t dropout_seed(const TransformerConfig& config, const ForwardContext& context, std::int64_t which);

}  // namespace transformer
}  // namespace tutti
