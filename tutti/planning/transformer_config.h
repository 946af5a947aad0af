#pragma once
// The description of a decoder-only transformer (GPT, Llama, ...) as a value: its sizes, its tensors and their names,
// and its cost. Tensors are named as in Megatron-LM's core models. Layers have their number in the whole model,
// whichever rank holds them, so a checkpoint fits any grid. Pure arithmetic; published sizes: transformer_presets.h.
//
//   const TransformerConfig config = with_defaults(
//       {.layers = 2, .hidden = 64, .heads = 4, .vocabulary = 256, .sequence_length = 32});
//   parameters_of(config), flops_per_token(config), tensors_of(config) ...
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

enum class NormKind {
  kLayerNorm,  // Ba et al. 2016: weight and bias
  kRmsNorm,    // Zhang and Sennrich 2019: a weight, no mean is subtracted
};
enum class PositionKind {
  kLearned,  // a row of a table is added to the word embedding
  kRotary,   // Su et al. 2021: queries and keys are rotated, in halves as in GPT-NeoX
  kNone,
};
enum class ActivationKind {
  kGelu,         // Hendrycks and Gimpel 2016, the tanh form of GPT-2
  kSwiglu,       // Shazeer 2020: silu(gate) * up; linear_fc1 holds all gate rows, then all up rows
  kSquaredRelu,  // So et al. 2021
};

enum class Precision {
  kF32,
  kBF16,  // linear layers in bf16; weights, their gradients and the residual in f32
  kF16,   // the same in f16, with a loss scale
  kF64,   // to compare grids: differences are then errors, not roundings
};

struct TransformerConfig {
  // Sizes. with_defaults() fills in those that are 0 and have a default.
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int query_groups = 0;     // groups of heads that share keys and values; default: heads, none share
  int head_size = 0;        // of one head, --kv-channels; default: hidden / heads
  int ffn = 0;              // hidden size of an MLP, between its two linear layers; default: 4 x hidden
  int vocabulary = 0;       // tokens: rows of the word embedding
  int sequence_length = 0;  // of training
  int positions = 0;        // kLearned: rows of the table; at least sequence_length, the default
  // What is computed.
  NormKind norm = NormKind::kLayerNorm;
  double norm_epsilon = 1e-5;
  PositionKind position = PositionKind::kLearned;
  double rotary_base = 10000;
  double rotary_percent = 1;  // fraction of a head that is rotated, in (0, 1]
  ActivationKind activation = ActivationKind::kGelu;
  bool bias = true;       // of the linear layers
  bool qkv_bias = false;  // of linear_qkv, where the others have none
  bool tied = true;       // the word embedding is also the output layer
  // How it is trained. No tensor has another shape because of these.
  double attention_dropout = 0, hidden_dropout = 0;  // probabilities, below 1
  double initial_deviation = 0.02;                   // standard deviation of the first weights
  int vocabulary_divisible_by = 128;                 // pads the word embedding; checkpoints have no padding
  Precision precision = Precision::kF32;
  std::uint64_t seed = 1234;  // of the first weights and of dropout

  std::int64_t query_size() const { return std::int64_t(heads) * head_size; }
  std::int64_t key_size() const { return std::int64_t(query_groups) * head_size; }
  // Rows of linear_qkv: the queries of all heads, then the keys of all groups, then their values, as in GPT-2.
  std::int64_t qkv_size() const { return query_size() + 2 * key_size(); }
  bool has_qkv_bias() const { return bias || qkv_bias; }
  std::int64_t fc1_size() const { return std::int64_t(ffn) * (activation == ActivationKind::kSwiglu ? 2 : 1); }
  int rotary_size() const { return int(double(head_size) * rotary_percent); }  // channels of a head that are rotated
  bool operator==(const TransformerConfig&) const = default;
};

// The config with defaults in place of the sizes that are 0: query_groups, head_size, ffn, positions.
TransformerConfig with_defaults(TransformerConfig config);

// Fails with kInvalidArgument if the sizes do not fit together: sizes that are not positive, heads that query_groups
// does not divide, a sequence longer than the positions, a rotation of an odd number of channels. The message names
// values that fit.
Status check(const TransformerConfig& config);

// How a model is divided among ranks.
struct ModelDivision {
  int tensor = 1, pipeline = 1, chunks = 1, context = 1;
  bool sequence_parallel = false;
};
// Fails with kInvalidArgument if `tensor` does not divide heads, query groups or the MLP, if context and sequence
// parallelism do not divide the sequence, or if there are fewer layers than stages. (A vocabulary is padded, so any
// size works.)
Status check(const TransformerConfig& config, const ModelDivision& division);

struct ModelTensor {
  std::string name;  // "decoder.layers.3.mlp.linear_fc1.weight"
  std::vector<std::int64_t> shape;
};
// All tensors of the model, each once, from the embedding to the head.
std::vector<ModelTensor> tensors_of(const TransformerConfig& config);
// The number of parameters: the elements of tensors_of(), in closed form.
std::int64_t parameters_of(const TransformerConfig& config);

// Floating point operations of a training step per token, where a multiplication and an addition count as two. Each
// weight that a token uses costs twice three operations (forward, gradient of the input, gradient of the weight).
// Causal attention over a sequence of length s, of which a token sees half on average, adds 6 s x query_size() per
// layer. The same as Megatron-LM's num_floating_point_operations(). Recomputation, softmax and norms are not counted.
double flops_per_token(const TransformerConfig& config);

// "GPT: 2 layers of 64, 4 heads, 128 positions, vocabulary 512: 0.14 M parameters"
std::string to_string(const TransformerConfig& config);

}  // namespace tutti
