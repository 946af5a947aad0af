#pragma once
// What a GPT is made of: its sizes, the tensors that it consists of, their names, and what it costs. Tensors are named
// as in Megatron-LM's core models, layers by their number in the whole model, whoever has them: so a checkpoint fits
// any grid. Pure arithmetic.
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

enum class NormKind {
  kLayerNorm,  // Ba et al. 2016: weight and bias
  kRmsNorm,    // Zhang and Sennrich 2019: a weight, no mean is taken
};
enum class PositionKind {
  kLearned,  // a row of a table is added to that of the word
  kRotary,   // Su et al. 2021: queries and keys are turned, in the halves that GPT-NeoX has
  kNone,
};
enum class ActivationKind {
  kGelu,         // Hendrycks and Gimpel 2016, by tanh as GPT-2 computes it
  kSwiglu,       // Shazeer 2020: silu(gate) * up; linear_fc1 has all rows of the gate, then those of up
  kSquaredRelu,  // So et al. 2021
};

struct GptShape {
  int layers = 0;
  int hidden = 0;
  int heads = 0;
  int groups = 0;           // of heads that share keys and values; as many as heads: none share
  int head_size = 0;        // of one head, --kv-channels
  int ffn = 0;              // between the two linear layers of an MLP
  int vocabulary = 0;       // tokens: rows of the word embedding
  int sequence_length = 0;  // that is trained with
  int positions = 0;        // that there are; kLearned: rows of the table
  NormKind norm = NormKind::kLayerNorm;
  double norm_epsilon = 1e-5;
  PositionKind position = PositionKind::kLearned;
  double rotary_base = 10000;
  double rotary_percent = 1;  // of a head, in (0, 1]: the rest is not turned
  ActivationKind activation = ActivationKind::kGelu;
  bool bias = true;  // of the linear layers
  bool tied = true;  // the word embedding is the output layer as well

  std::int64_t query_size() const { return std::int64_t(heads) * head_size; }
  std::int64_t key_size() const { return std::int64_t(groups) * head_size; }
  // Rows of linear_qkv: the queries of all heads, then the keys of all groups, then their values, as GPT-2 has them.
  std::int64_t qkv_size() const { return query_size() + 2 * key_size(); }
  std::int64_t fc1_size() const { return std::int64_t(ffn) * (activation == ActivationKind::kSwiglu ? 2 : 1); }
  int rotary_size() const { return int(double(head_size) * rotary_percent); }  // numbers of a head that are turned
};

// kInvalidArgument, in one sentence, with what would fit: sizes that are not positive, heads that the groups do not
// divide, a sequence that is longer than the positions, a rotation of an odd number of channels.
Status check(const GptShape& shape);

// How a model is divided.
struct GptDivision {
  int tensor = 1, pipeline = 1, chunks = 1, context = 1;
  bool sequence_parallel = false;
};
// kInvalidArgument: heads, groups or an MLP that `tensor` does not divide, a sequence that context and sequence
// parallelism do not, fewer layers than stages. (A vocabulary is filled up, so any will do.)
Status check(const GptShape& shape, const GptDivision& division);

struct GptTensor {
  std::string name;  // "decoder.layers.3.mlp.linear_fc1.weight"
  std::vector<std::int64_t> shape;
};
// All of the model, each once, from the embedding to the head.
std::vector<GptTensor> tensors_of(const GptShape& shape);
// Numbers that are learned: the elements of tensors_of(), as a closed form.
std::int64_t parameters_of(const GptShape& shape);

// Floating point operations of a training step per token of a sequence, a multiply and an add being two: three times
// (forward, gradient of the input, gradient of the weight) twice each weight that a token meets, and for causal
// attention over a sequence of length s, of which a token meets half, 6 s x query_size() a layer. As Megatron-LM's
// num_floating_point_operations(); recomputation, softmax and norms are not counted.
double flops_per_token(const GptShape& shape);

// "GPT: 2 layers of 64, 4 heads, 128 positions, vocabulary 512: 0.14 M parameters"
std::string to_string(const GptShape& shape);

}  // namespace tutti
