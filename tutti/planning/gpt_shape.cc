#include "tutti/planning/gpt_shape.h"

#include <fmt/format.h>

#include <limits>
#include <numeric>

#include "tutti/base/text.h"

namespace tutti {
namespace {

struct Positive {
  const char* what;
  int value;
};

Error refused_shape(std::string detail, std::string hint = {}) {
  return invalid_argument(std::move(detail), std::move(hint));
}

// The multiples of `unit` next to `value`, for a hint.
std::string multiples_around(std::int64_t value, std::int64_t unit) {
  const std::int64_t below = value / unit * unit;
  return below > 0 ? fmt::format("{} or {} would do", below, below + unit) : fmt::format("{} would do", unit);
}

// The divisors of a number, as "1, 2 or 4".
std::string divisors_of(std::int64_t value, int most = 64) {
  std::vector<std::string> divisors;
  for (int divisor = 1; divisor <= most && divisor <= value; ++divisor)
    if (value % divisor == 0) divisors.push_back(std::to_string(divisor));
  const std::string last = divisors.back();
  divisors.pop_back();
  return divisors.empty() ? last : join(divisors, ", ") + " or " + last;
}

struct NormTensors {
  bool has_bias;
  std::int64_t hidden;
  void add_to(std::vector<GptTensor>& tensors, const std::string& name) const {
    tensors.push_back({name + ".weight", {hidden}});
    if (has_bias) tensors.push_back({name + ".bias", {hidden}});
  }
};

}  // namespace

Status check(const GptShape& shape) {
  for (const auto& [what, value] : {Positive{"layers (--num-layers)", shape.layers},
                                    {"numbers a token (--hidden-size)", shape.hidden},
                                    {"heads (--num-attention-heads)", shape.heads},
                                    {"query groups (--num-query-groups)", shape.groups},
                                    {"numbers a head (--kv-channels)", shape.head_size},
                                    {"numbers in the MLP (--ffn-hidden-size)", shape.ffn},
                                    {"tokens in the vocabulary", shape.vocabulary},
                                    {"tokens in a sequence (--seq-length)", shape.sequence_length},
                                    {"positions (--max-position-embeddings)", shape.positions}})
    if (value < 1) return refused_shape(fmt::format("a GPT of {} {}: 1 is the least", value, what));
  if (shape.groups > shape.heads || shape.heads % shape.groups != 0)
    return refused_shape(
        fmt::format("{} attention heads cannot be divided into {} query groups", shape.heads, shape.groups),
        "--num-query-groups " + divisors_of(shape.heads, shape.heads) + " would do");
  if (shape.sequence_length > shape.positions)
    return refused_shape(
        fmt::format("a sequence of {} tokens (--seq-length) is longer than the {} positions that the model "
                    "has (--max-position-embeddings)",
                    shape.sequence_length, shape.positions),
        fmt::format("--max-position-embeddings {} would do", shape.sequence_length));
  if (shape.position == PositionKind::kRotary && (shape.rotary_size() < 2 || shape.rotary_size() % 2 != 0))
    return refused_shape(
        fmt::format("rotary positions turn pairs of numbers, and {} of a head's {} numbers are an odd count",
                    shape.rotary_size(), shape.head_size),
        "an even --kv-channels (hidden size / heads) with --rotary-percent 1 would do");
  if (parameters_of(shape) > std::numeric_limits<std::int64_t>::max() / 64)
    return refused_shape("the model has more parameters than can be counted");
  return {};
}

Status check(const GptShape& shape, const GptDivision& division) {
  const auto [tensor, pipeline, chunks, context, sequence_parallel] = division;
  struct Divided {
    const char *what, *option;
    std::int64_t value;
  };
  for (const auto& [what, option, value] : {Divided{"attention heads", "--num-attention-heads", shape.heads},
                                            {"query groups", "--num-query-groups", shape.groups},
                                            {"numbers in the MLP", "--ffn-hidden-size", shape.ffn}})
    if (value % tensor != 0)
      return refused_shape(
          fmt::format("{} {} ({}) cannot be divided over --tensor-model-parallel-size {}", value, what, option, tensor),
          fmt::format("--tensor-model-parallel-size {}, or {} {}",
                      divisors_of(std::gcd(std::gcd(shape.heads, shape.groups), shape.ffn)), option,
                      multiples_around(value, tensor)));
  if (sequence_parallel && tensor == 1)
    return refused_shape("--sequence-parallel divides what tensor parallel ranks would all compute, and there is one",
                         "leave it out, or give --tensor-model-parallel-size 2 or more");
  if (const int parts = context * 2; context > 1 && shape.sequence_length % parts != 0)
    return refused_shape(
        fmt::format("a sequence of {} tokens cannot be divided over --context-parallel-size {}: each rank "
                    "has one piece from its front and one from its back",
                    shape.sequence_length, context),
        "--seq-length " + multiples_around(shape.sequence_length, parts));
  if (const int parts = tensor * context; sequence_parallel && shape.sequence_length % parts != 0)
    return refused_shape(
        fmt::format("--sequence-parallel divides a sequence of {} tokens over {} ranks{}, which does not go",
                    shape.sequence_length, parts,
                    context > 1 ? fmt::format(" ({} tensor x {} context)", tensor, context) : std::string()),
        "--seq-length " + multiples_around(shape.sequence_length, parts));
  if (const int stages = pipeline * chunks; shape.layers < stages)
    return refused_shape(fmt::format("{} layers cannot be divided over {} stages ({} ranks x {} chunks)", shape.layers,
                                     stages, pipeline, chunks),
                         fmt::format("--num-layers {} or more, or fewer stages", stages));
  return {};
}

std::vector<GptTensor> tensors_of(const GptShape& shape) {
  std::vector<GptTensor> tensors;
  const NormTensors norm{shape.norm == NormKind::kLayerNorm, shape.hidden};
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in) {
    tensors.push_back({name + ".weight", {out, in}});
    if (shape.bias) tensors.push_back({name + ".bias", {out}});
  };
  tensors.push_back({"embedding.word_embeddings.weight", {shape.vocabulary, shape.hidden}});
  if (shape.position == PositionKind::kLearned)
    tensors.push_back({"embedding.position_embeddings.weight", {shape.positions, shape.hidden}});
  for (int layer = 0; layer < shape.layers; ++layer) {
    const std::string name = fmt::format("decoder.layers.{}.", layer);
    norm.add_to(tensors, name + "input_layernorm");
    linear(name + "self_attention.linear_qkv", shape.qkv_size(), shape.hidden);
    linear(name + "self_attention.linear_proj", shape.hidden, shape.query_size());
    norm.add_to(tensors, name + "pre_mlp_layernorm");
    linear(name + "mlp.linear_fc1", shape.fc1_size(), shape.hidden);
    linear(name + "mlp.linear_fc2", shape.hidden, shape.ffn);
  }
  norm.add_to(tensors, "decoder.final_layernorm");
  if (!shape.tied) tensors.push_back({"output_layer.weight", {shape.vocabulary, shape.hidden}});
  return tensors;
}

std::int64_t parameters_of(const GptShape& shape) {
  const std::int64_t h = shape.hidden, norm = shape.norm == NormKind::kLayerNorm ? 2 * h : h;
  const std::int64_t words = std::int64_t(shape.vocabulary) * h;
  const std::int64_t matrices = h * (shape.qkv_size() + shape.query_size() + shape.fc1_size() + shape.ffn);
  const std::int64_t biases = shape.bias ? shape.qkv_size() + shape.fc1_size() + 2 * h : 0;
  const std::int64_t positions = shape.position == PositionKind::kLearned ? shape.positions * h : 0;
  return words * (shape.tied ? 1 : 2) + positions + shape.layers * (matrices + biases + 2 * norm) + norm;
}

double flops_per_token(const GptShape& shape) {
  const double h = shape.hidden, query = double(shape.query_size());
  const double matrices = h * (double(shape.qkv_size()) + query + double(shape.fc1_size()) + shape.ffn);
  const double attention = query * shape.sequence_length;  // scores and their use, each over half of the sequence
  return 6 * (shape.layers * (matrices + attention) + h * shape.vocabulary);
}

std::string to_string(const GptShape& shape) {
  return fmt::format("GPT: {} layers of {}, {} heads{}, {} positions, vocabulary {}: {:.2f} M parameters", shape.layers,
                     shape.hidden, shape.heads,
                     shape.groups == shape.heads ? std::string() : fmt::format(" in {} groups", shape.groups),
                     shape.positions, shape.vocabulary, double(parameters_of(shape)) / 1e6);
}

}  // namespace tutti
