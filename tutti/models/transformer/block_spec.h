#pragma once
// Which attention and which MLP a transformer's layers have, and how a layer combines them (Megatron-LM's ModuleSpec,
// small). The default is GPT's pre-norm block, whose norm, positions and activation follow the config. A model with
// another attention:
//
//   tutti::BlockSpec spec;
//   spec.attention = [](const tutti::LayerContext& layer) { return std::make_shared<MyAttention>(layer); };
//   tutti::Transformer model(config, parallel, {.block = spec});
//
// A function that makes a module is called once a layer, on every rank that has it. What it makes has to compute the
// same on every rank of the tensor group; column_linear() and row_linear() of LayerContext see to that.
#include <functional>
#include <memory>

#include "tutti/models/transformer/layer.h"

namespace tutti {

using MakeTransformerModule = std::function<std::shared_ptr<TransformerModule>(const LayerContext& layer)>;

// Causal self-attention: rotary positions if the config has them, query groups, a ring over the context group.
std::shared_ptr<TransformerModule> self_attention(const LayerContext& layer);
// Two linear layers and the activation of the config between them.
std::shared_ptr<TransformerModule> mlp(const LayerContext& layer);

struct BlockSpec {
  MakeTransformerModule attention = self_attention;
  MakeTransformerModule mlp = tutti::mlp;
  // The layer of these two; none: x + attention(norm(x)), then x + mlp(norm(x)).
  std::function<std::shared_ptr<TransformerModule>(const LayerContext& layer, const BlockSpec& spec)> block = {};
};

// The layer that a spec describes.
std::shared_ptr<TransformerModule> make_block(const LayerContext& layer, const BlockSpec& spec);

}  // namespace tutti
