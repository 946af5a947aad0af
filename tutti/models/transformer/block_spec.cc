#include "tutti/models/transformer/block_spec.h"

#include <ATen/Functions.h>

#include "tutti/parallel/tensor/attention.h"
#include "tutti/parallel/tensor/division.h"
#include "tutti/parallel/tensor/gelu.h"

namespace tutti {
namespace {

class SelfAttention : public TransformerModule {
 public:
  explicit SelfAttention(const LayerContext& layer) : TransformerModule(layer) {
    const std::int64_t query = config().query_size(), key = config().key_size();
    qkv_ = register_module("linear_qkv", layer.column_linear("self_attention.linear_qkv", config().qkv_size(),
                                                             {query, key, key}, config().has_qkv_bias()));
    proj_ = register_module("linear_proj", layer.row_linear("self_attention.linear_proj", query));
  }

  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) override {
    const Group& tensor = layer().parallel.tensor;
    const auto [heads, groups] = head_share(config().heads, config().query_groups, ranks_of(tensor));
    const std::int64_t d = config().head_size;
    const at::Tensor qkv = qkv_->forward(transformer::for_product(config(), x));
    const auto parts = qkv.split_with_sizes({heads * d, groups * d, groups * d}, -1);
    const auto of_heads = [&](const at::Tensor& part, std::int64_t count) {
      return part.reshape({part.size(0), part.size(1), count, d});
    };
    const auto rotated = [&](const at::Tensor& part) { return layer().rotary->rotate(part, context.positions); };
    AttentionOptions options{.first_head = rank_in(tensor) * heads, .first_seen = context.first_seen};
    if (is_training()) {
      options.dropout = config().attention_dropout;
      options.dropout_seed = dropout_seed(context, 0);
    }
    const at::Tensor seen = ring_attention(layer().parallel.context, rotated(of_heads(parts[0], heads)),
                                           rotated(of_heads(parts[1], groups)), of_heads(parts[2], groups), options);
    return proj_->forward(seen.reshape({seen.size(0), seen.size(1), heads * d}));
  }

 private:
  ColumnParallelLinear qkv_{nullptr};
  RowParallelLinear proj_{nullptr};
};

class Mlp : public TransformerModule {
 public:
  explicit Mlp(const LayerContext& layer) : TransformerModule(layer) {
    const std::int64_t ffn = config().ffn;
    const bool gated = config().activation == ActivationKind::kSwiglu;
    fc1_ =
        register_module("linear_fc1", layer.column_linear("mlp.linear_fc1", config().fc1_size(),
                                                          gated ? std::vector{ffn, ffn} : std::vector<std::int64_t>{}));
    fc2_ = register_module("linear_fc2", layer.row_linear("mlp.linear_fc2", ffn));
  }

  at::Tensor forward(const at::Tensor& x, const ForwardContext&) override {
    const at::Tensor wide = fc1_->forward(transformer::for_product(config(), x));
    switch (config().activation) {
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

 private:
  ColumnParallelLinear fc1_{nullptr};
  RowParallelLinear fc2_{nullptr};
};

class PreNormBlock : public TransformerModule {
 public:
  PreNormBlock(const LayerContext& layer, const BlockSpec& spec) : TransformerModule(layer) {
    input_norm_ = register_module("input_layernorm", std::make_shared<Norm>(layer.config, layer.parallel));
    attention_ = register_module("self_attention", spec.attention(layer));
    mlp_norm_ = register_module("pre_mlp_layernorm", std::make_shared<Norm>(layer.config, layer.parallel));
    mlp_ = register_module("mlp", spec.mlp(layer));
  }

  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) override {
    const at::Tensor attended = x + hidden_dropout(attention_->forward(input_norm_->forward(x), context), context, 1);
    return attended + hidden_dropout(mlp_->forward(mlp_norm_->forward(attended), context), context, 2);
  }

 private:
  std::shared_ptr<Norm> input_norm_, mlp_norm_;
  std::shared_ptr<TransformerModule> attention_, mlp_;
};

}  // namespace

std::shared_ptr<TransformerModule> self_attention(const LayerContext& layer) {
  return std::make_shared<SelfAttention>(layer);
}

std::shared_ptr<TransformerModule> mlp(const LayerContext& layer) { return std::make_shared<Mlp>(layer); }

std::shared_ptr<TransformerModule> make_block(const LayerContext& layer, const BlockSpec& spec) {
  if (spec.block) return spec.block(layer, spec);
  return std::make_shared<PreNormBlock>(layer, spec);
}

}  // namespace tutti
