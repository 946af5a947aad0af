#include "tutti/models/transformer/layer.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cmath>

#include "tutti/base/random.h"

namespace tutti {
namespace {

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ std::uint8_t(c)) * 0x100000001b3u;
  return hash;
}

InitialWeights initial_of_layer(const LayerContext& layer, std::string_view name, double deviation) {
  return transformer::initial_weights(layer.config, fmt::format("decoder.layers.{}.{}.weight", layer.number, name),
                                      deviation);
}

}  // namespace

namespace transformer {

at::ScalarType dtype_of(const TransformerConfig& config) {
  return config.precision == Precision::kF64 ? at::kDouble : at::kFloat;
}

at::Tensor for_product(const TransformerConfig& config, const at::Tensor& x) {
  switch (config.precision) {
    case Precision::kBF16:
      return x.to(at::kBFloat16);
    case Precision::kF16:
      return x.to(at::kHalf);
    case Precision::kF32:
    case Precision::kF64:
      break;
  }
  return x;
}

InitialWeights initial_weights(const TransformerConfig& config, const std::string& name, double deviation) {
  const auto layer = std::int64_t(fnv1a(name) >> 1);
  return InitialWeights::normal(seed_at(config.seed, {.layer = layer}), deviation);
}

std::uint64_t dropout_seed(const TransformerConfig& config, const ForwardContext& context, std::int64_t which) {
  return seed_at(config.seed, {.step = context.step, .micro_batch = context.micro_batch, .layer = which});
}

}  // namespace transformer

ColumnParallelLinear LayerContext::column_linear(std::string_view name, std::int64_t out_features,
                                                 std::vector<std::int64_t> blocks, std::optional<bool> bias) const {
  return ColumnParallelLinear(
      parallel.tensor, ColumnParallelLinearOptions{.in_features = config.hidden,
                                                   .out_features = out_features,
                                                   .bias = bias.value_or(config.bias),
                                                   .blocks = std::move(blocks),
                                                   .sequence_parallel = parallel.sequence_parallel,
                                                   .initial = initial_of_layer(*this, name, config.initial_deviation),
                                                   .dtype = transformer::dtype_of(config)});
}

RowParallelLinear LayerContext::row_linear(std::string_view name, std::int64_t in_features) const {
  const double deviation = config.initial_deviation / std::sqrt(2.0 * config.layers);
  return RowParallelLinear(parallel.tensor,
                           RowParallelLinearOptions{.in_features = in_features,
                                                    .out_features = config.hidden,
                                                    .bias = config.bias,
                                                    .sequence_parallel = parallel.sequence_parallel,
                                                    .initial = initial_of_layer(*this, name, deviation),
                                                    .dtype = transformer::dtype_of(config)});
}

std::uint64_t TransformerModule::dropout_seed(const ForwardContext& context, int which) const {
  return transformer::dropout_seed(config(), context, 3 * (layer_.number + 1) + which);
}

at::Tensor TransformerModule::hidden_dropout(const at::Tensor& x, const ForwardContext& context, int which) const {
  const double p = config().hidden_dropout;
  if (p == 0 || !is_training()) return x;
  return sequence_dropout(x, p, dropout_seed(context, which), layer_.rows);
}

Norm::Norm(const TransformerConfig& config, const Parallel& parallel)
    : kind_(config.norm), epsilon_(config.norm_epsilon), hidden_(config.hidden), partial_(parallel.divides_rows()) {
  const auto dtype = transformer::dtype_of(config);
  weight_ = register_parameter("weight", at::ones({hidden_}, dtype));
  if (kind_ == NormKind::kLayerNorm) bias_ = register_parameter("bias", at::zeros({hidden_}, dtype));
}

at::Tensor Norm::forward(const at::Tensor& x) {
  if (kind_ == NormKind::kLayerNorm) return at::layer_norm(x, {x.size(-1)}, weight_, bias_, epsilon_);
  const at::Tensor mean_square = at::mean(x * x, {-1}, /*keepdim=*/true);
  return x * at::rsqrt(mean_square + epsilon_) * weight_;
}

ParameterLayout Norm::layout_of(std::string_view) const {
  return ParameterLayout::whole({std::uint64_t(hidden_)}, partial_);
}

}  // namespace tutti
