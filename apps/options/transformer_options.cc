#include "apps/options/transformer_options.h"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::cli {
namespace {

Setter dropout(double& target) {
  return value([&target](const std::string& name, const std::string& text) -> Status {
    target = TUTTI_TRY(real_number(name, text, 0, 1));
    if (target == 1) return usage(name + " 1: a dropout of 1 leaves nothing", "less than 1");
    return {};
  });
}

}  // namespace

std::vector<Option> transformer_options(TransformerConfig& s) {
  constexpr const char* kOneActivation = "drop one of the two: an MLP has one activation";
  return {{"--num-layers", "N", "", "transformer layers", whole(s.layers, 1, kMostSize)},
          {"--hidden-size", "N", "", "hidden dimension of the transformer", whole(s.hidden, 1, kMostSize)},
          {"--num-attention-heads", "N", "", "attention heads", whole(s.heads, 1, kMostSize)},
          {"--ffn-hidden-size", "N", "",
           "hidden dimension of an MLP (4 x hidden size; with --swiglu two thirds of that, as a multiple of 64)",
           whole(s.ffn, 1, kMostSize)},
          {"--kv-channels", "N", "", "dimension of a head (hidden size / heads)", whole(s.head_size, 1, kMostSize)},
          {"--group-query-attention", "", "", "grouped-query attention: groups of heads share keys and values",
           flag_only()},
          {"--num-query-groups", "N", "1", "with --group-query-attention: number of groups",
           whole(s.query_groups, 1, kMostSize), needs("--group-query-attention", "", "give both")},
          {"--max-position-embeddings", "N", "", "number of positions of the model", whole(s.positions, 1, kMostSize)},
          {"--position-embedding-type", "KIND", "learned_absolute", "learned_absolute, rope or none",
           choice(s.position, {"learned_absolute", "rope", "none"})},
          {"--rotary-base", "X", "10000", "rope: period of the slowest pair", real(s.rotary_base, 1),
           only_with("--position-embedding-type rope")},
          {"--rotary-percent", "X", "1", "rope: share of a head's dimension that is rotated",
           real(s.rotary_percent, 0, 1), only_with("--position-embedding-type rope")},
          {"--normalization", "KIND", "LayerNorm", "LayerNorm or RMSNorm", choice(s.norm, {"LayerNorm", "RMSNorm"})},
          {"--norm-epsilon", "X", "1e-5", "epsilon added to the variance", real(s.norm_epsilon, 0)},
          {"--swiglu", "", "", "use silu(gate) * up in MLPs", flag_only(), excludes("--squared-relu", kOneActivation)},
          {"--squared-relu", "", "", "use relu(x)^2 in MLPs instead of GELU", flag_only()},
          {"--disable-bias-linear", "", "", "use linear layers without bias", flag_off(s.bias)},
          {"--untie-embeddings-and-output-weights", "", "", "give the output layer its own weights", flag_off(s.tied)},
          {"--attention-dropout", "X", "0.1", "dropout of the attention weights", dropout(s.attention_dropout)},
          {"--hidden-dropout", "X", "0.1", "dropout of the embedding and of what is added to the residual",
           dropout(s.hidden_dropout)},
          {"--make-vocab-size-divisible-by", "N", "128",
           "pad the word embedding to a multiple of N x tensor parallel size rows",
           whole(s.vocabulary_divisible_by, 1, kMostSize)}};
}

Status set_transformer_shape(TransformerConfig& s, const OptionTexts& texts) {
  if (!texts.has("--kv-channels") && s.hidden % s.heads != 0)
    return usage(fmt::format("--hidden-size {} cannot be divided into --num-attention-heads {}", s.hidden, s.heads),
                 fmt::format("--hidden-size {}, or give the dimension of a head: --kv-channels",
                             (s.hidden / s.heads + 1) * s.heads));
  if (!texts.has("--kv-channels")) s.head_size = s.hidden / s.heads;
  if (!texts.is_given("--group-query-attention")) s.query_groups = s.heads;
  const bool swiglu = texts.is_given("--swiglu");
  s.activation = swiglu                             ? ActivationKind::kSwiglu
                 : texts.is_given("--squared-relu") ? ActivationKind::kSquaredRelu
                                                    : ActivationKind::kGelu;
  const int wide = 4 * s.hidden, gated = std::max(wide * 2 / 3 / 64 * 64, 64);
  if (!texts.has("--ffn-hidden-size")) s.ffn = swiglu ? gated : wide;
  return tutti::check(s);
}

}  // namespace tutti::cli
