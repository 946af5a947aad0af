#include "tutti/models/gpt/block.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cmath>

#include "tutti/base/random.h"
#include "tutti/parallel/tensor/attention.h"
#include "tutti/parallel/tensor/division.h"
#include "tutti/parallel/tensor/gelu.h"

namespace tutti::gpt {
namespace {

// A submodule that only has others: "mlp" in "mlp.linear_fc1".
struct Folder : torch::nn::Module {};

std::uint64_t fnv1a(const std::string& text) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const char c : text) hash = (hash ^ std::uint8_t(c)) * 0x100000001b3u;
  return hash;
}

// The first 2 n of the last dimension's numbers as pairs (i, n + i), each turned by its position's angle.
at::Tensor rotated(const at::Tensor& x, const Surroundings& around, const at::Tensor& positions) {
  if (!around.cosines.defined()) return x;
  const std::int64_t half = around.cosines.size(-1), rest = x.size(-1) - 2 * half;
  const auto at_positions = [&](const at::Tensor& table) {
    const at::Tensor rows = table.index_select(0, positions.reshape({-1}));
    return rows.view({positions.size(0), positions.size(1), 1, half}).to(x.scalar_type());
  };
  const auto parts = x.split_with_sizes({half, half, rest}, -1);
  const at::Tensor cosines = at_positions(around.cosines), sines = at_positions(around.sines);
  const at::Tensor first = parts[0] * cosines - parts[1] * sines;
  const at::Tensor second = parts[1] * cosines + parts[0] * sines;
  return rest > 0 ? at::cat({first, second, parts[2]}, -1) : at::cat({first, second}, -1);
}

}  // namespace

at::ScalarType dtype_of(const Options& options) {
  return options.precision == Precision::kF64 ? at::kDouble : at::kFloat;
}

at::Tensor for_product(const Options& options, const at::Tensor& x) {
  switch (options.precision) {
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

InitialWeights initial_weights(const Options& options, const std::string& name, double deviation) {
  const auto layer = std::int64_t(fnv1a(name) >> 1);
  return InitialWeights::normal(seed_at(options.seed, {.layer = layer}), deviation);
}

std::uint64_t dropout_seed(const Options& options, const Passage& passage, std::int64_t which) {
  return seed_at(options.seed, {.step = passage.step, .micro_batch = passage.micro_batch, .layer = which});
}

Norm::Norm(const Options& options)
    : shape_(options.shape), partial_(options.parallel.sequence_parallel && options.parallel.grid.tensor > 1) {
  weight_ = register_parameter("weight", at::ones({shape_.hidden}, dtype_of(options)));
  if (shape_.norm == NormKind::kLayerNorm)
    bias_ = register_parameter("bias", at::zeros({shape_.hidden}, dtype_of(options)));
}

at::Tensor Norm::forward(const at::Tensor& x) {
  if (shape_.norm == NormKind::kLayerNorm) return at::layer_norm(x, {x.size(-1)}, weight_, bias_, shape_.norm_epsilon);
  const at::Tensor mean_square = at::mean(x * x, {-1}, /*keepdim=*/true);
  return x * at::rsqrt(mean_square + shape_.norm_epsilon) * weight_;
}

ParameterLayout Norm::layout_of(std::string_view) const {
  return ParameterLayout::whole({std::uint64_t(shape_.hidden)}, partial_);
}

void fill_rotations(Surroundings& around, at::ScalarType dtype) {
  const auto& shape = around.options.shape;
  if (shape.position != PositionKind::kRotary) return;
  const int turned = shape.rotary_size();
  const at::Tensor place = at::arange(0, turned, 2, at::kDouble) / double(turned);
  const at::Tensor frequency = at::pow(shape.rotary_base, place).reciprocal();
  const at::Tensor angle = at::outer(at::arange(shape.sequence_length, at::kDouble), frequency);
  around.cosines = angle.cos().to(dtype);
  around.sines = angle.sin().to(dtype);
}

Block::Block(const Surroundings& around, int number) : around_(around), number_(number) {
  const auto& options = around.options;
  const auto& shape = options.shape;
  const auto& tensor = around.groups.tensor;
  const bool sequence_parallel = options.parallel.sequence_parallel;
  const auto dtype = dtype_of(options);
  const double first = options.initial_deviation;
  // What is added to the residual begins smaller, the deeper the model is (Radford et al. 2019).
  const double last = first / std::sqrt(2.0 * shape.layers);
  const std::int64_t query = shape.query_size(), key = shape.key_size(), ffn = shape.ffn;
  const auto initial = [&](const char* layer, double deviation) {
    return initial_weights(options, fmt::format("decoder.layers.{}.{}.weight", number, layer), deviation);
  };

  input_norm_ = register_module("input_layernorm", std::make_shared<Norm>(options));
  const auto attention = register_module("self_attention", std::make_shared<Folder>());
  qkv_ = attention->register_module(
      "linear_qkv",
      ColumnParallelLinear(tensor, ColumnParallelLinearOptions{.in_features = shape.hidden,
                                                               .out_features = shape.qkv_size(),
                                                               .bias = shape.bias,
                                                               .blocks = {query, key, key},
                                                               .sequence_parallel = sequence_parallel,
                                                               .initial = initial("self_attention.linear_qkv", first),
                                                               .dtype = dtype}));
  proj_ = attention->register_module(
      "linear_proj",
      RowParallelLinear(tensor, RowParallelLinearOptions{.in_features = query,
                                                         .out_features = shape.hidden,
                                                         .bias = shape.bias,
                                                         .sequence_parallel = sequence_parallel,
                                                         .initial = initial("self_attention.linear_proj", last),
                                                         .dtype = dtype}));
  mlp_norm_ = register_module("pre_mlp_layernorm", std::make_shared<Norm>(options));
  const auto mlp = register_module("mlp", std::make_shared<Folder>());
  fc1_ = mlp->register_module(
      "linear_fc1",
      ColumnParallelLinear(tensor, ColumnParallelLinearOptions{.in_features = shape.hidden,
                                                               .out_features = shape.fc1_size(),
                                                               .bias = shape.bias,
                                                               .blocks = shape.activation == ActivationKind::kSwiglu
                                                                             ? std::vector<std::int64_t>{ffn, ffn}
                                                                             : std::vector<std::int64_t>{},
                                                               .sequence_parallel = sequence_parallel,
                                                               .initial = initial("mlp.linear_fc1", first),
                                                               .dtype = dtype}));
  fc2_ = mlp->register_module(
      "linear_fc2", RowParallelLinear(tensor, RowParallelLinearOptions{.in_features = ffn,
                                                                       .out_features = shape.hidden,
                                                                       .bias = shape.bias,
                                                                       .sequence_parallel = sequence_parallel,
                                                                       .initial = initial("mlp.linear_fc2", last),
                                                                       .dtype = dtype}));
}

at::Tensor Block::dropped(const at::Tensor& x, const Passage& passage, int which) const {
  const double p = around_.options.hidden_dropout;
  if (p == 0 || !is_training()) return x;
  return sequence_dropout(x, p, dropout_seed(around_.options, passage, 3 * (number_ + 1) + which), around_.rows);
}

at::Tensor Block::attend(const at::Tensor& x, const Passage& passage) {
  const auto& options = around_.options;
  const auto& shape = options.shape;
  const Group& tensor = around_.groups.tensor;
  const auto [heads, groups] = head_share(shape.heads, shape.groups, ranks_of(tensor));
  const std::int64_t d = shape.head_size;
  const at::Tensor qkv = qkv_->forward(for_product(options, x));
  const auto parts = qkv.split_with_sizes({heads * d, groups * d, groups * d}, -1);
  const auto of_heads = [&](const at::Tensor& part, std::int64_t count) {
    return part.reshape({part.size(0), part.size(1), count, d});
  };
  AttentionOptions attention{.first_head = rank_in(tensor) * heads, .first_seen = passage.first_seen};
  if (is_training()) {
    attention.dropout = options.attention_dropout;
    attention.dropout_seed = dropout_seed(options, passage, 3 * (number_ + 1));
  }
  const at::Tensor seen = ring_attention(
      around_.groups.context, rotated(of_heads(parts[0], heads), around_, passage.positions),
      rotated(of_heads(parts[1], groups), around_, passage.positions), of_heads(parts[2], groups), attention);
  return proj_->forward(seen.reshape({seen.size(0), seen.size(1), heads * d}));
}

at::Tensor Block::mlp(const at::Tensor& x) {
  const at::Tensor wide = fc1_->forward(for_product(around_.options, x));
  switch (around_.options.shape.activation) {
    case ActivationKind::kGelu:
      return fc2_->forward(gelu_tanh(wide));
    case ActivationKind::kSwiglu: {
      const auto halves = wide.chunk(2, -1);
      return fc2_->forward(at::silu(halves[0]) * halves[1]);
    }
    case ActivationKind::kSquaredRelu: {
      const at::Tensor positive = at::relu(wide);
      return fc2_->forward(positive * positive);
    }
  }
  TUTTI_REQUIRE(false, "an activation that is none");
  return {};
}

at::Tensor Block::forward(const at::Tensor& x, const Passage& passage) {
  const at::Tensor attended = x + dropped(attend(input_norm_->forward(x), passage), passage, 1);
  return attended + dropped(mlp(mlp_norm_->forward(attended)), passage, 2);
}

}  // namespace tutti::gpt
