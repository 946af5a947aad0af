#include "tutti/planning/transformer_config.h"

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
  void add_to(std::vector<ModelTensor>& tensors, const std::string& name) const {
    tensors.push_back({name + ".weight", {hidden}});
    if (has_bias) tensors.push_back({name + ".bias", {hidden}});
  }
};

}  // namespace

TransformerConfig with_defaults(TransformerConfig config) {
  const auto set = [](int& size, int otherwise) {
    if (size == 0) size = otherwise;
  };
  set(config.query_groups, config.heads);
  set(config.head_size, config.heads > 0 ? config.hidden / config.heads : 0);
  set(config.ffn, 4 * config.hidden);
  set(config.positions, config.sequence_length);
  return config;
}

Status check(const TransformerConfig& config) {
  for (const auto& [what, value] : {Positive{"layers (--num-layers)", config.layers},
                                    {"numbers a token (--hidden-size)", config.hidden},
                                    {"heads (--num-attention-heads)", config.heads},
                                    {"query groups (--num-query-groups)", config.query_groups},
                                    {"numbers a head (--kv-channels)", config.head_size},
                                    {"numbers in the MLP (--ffn-hidden-size)", config.ffn},
                                    {"tokens in the vocabulary", config.vocabulary},
                                    {"tokens in a sequence (--seq-length)", config.sequence_length},
                                    {"positions (--max-position-embeddings)", config.positions}})
    if (value < 1) return invalid_argument(fmt::format("a GPT of {} {}: 1 is the least", value, what));
  if (config.query_groups > config.heads || config.heads % config.query_groups != 0)
    return invalid_argument(
        fmt::format("{} attention heads cannot be divided into {} query groups", config.heads, config.query_groups),
        "--num-query-groups " + divisors_of(config.heads, config.heads) + " would do");
  if (config.sequence_length > config.positions)
    return invalid_argument(
        fmt::format("a sequence of {} tokens (--seq-length) is longer than the {} positions that the model "
                    "has (--max-position-embeddings)",
                    config.sequence_length, config.positions),
        fmt::format("--max-position-embeddings {} would do", config.sequence_length));
  if (config.position == PositionKind::kRotary && (config.rotary_size() < 2 || config.rotary_size() % 2 != 0))
    return invalid_argument(
        fmt::format("rotary positions turn pairs of numbers, and {} of a head's {} numbers are an odd count",
                    config.rotary_size(), config.head_size),
        "an even --kv-channels (hidden size / heads) with --rotary-percent 1 would do");
  if (parameters_of(config) > std::numeric_limits<std::int64_t>::max() / 64)
    return invalid_argument("the model has more parameters than can be counted");
  return {};
}

Status check(const TransformerConfig& config, const ModelDivision& division) {
  const auto [tensor, pipeline, chunks, context, sequence_parallel] = division;
  struct Divided {
    const char *what, *option;
    std::int64_t value;
  };
  for (const auto& [what, option, value] : {Divided{"attention heads", "--num-attention-heads", config.heads},
                                            {"query groups", "--num-query-groups", config.query_groups},
                                            {"numbers in the MLP", "--ffn-hidden-size", config.ffn}})
    if (value % tensor != 0)
      return invalid_argument(
          fmt::format("{} {} ({}) cannot be divided over --tensor-model-parallel-size {}", value, what, option, tensor),
          fmt::format("--tensor-model-parallel-size {}, or {} {}",
                      divisors_of(std::gcd(std::gcd(config.heads, config.query_groups), config.ffn)), option,
                      multiples_around(value, tensor)));
  if (sequence_parallel && tensor == 1)
    return invalid_argument(
        "--sequence-parallel divides what tensor parallel ranks would all compute, and there is one",
        "leave it out, or give --tensor-model-parallel-size 2 or more");
  if (const int parts = context * 2; context > 1 && config.sequence_length % parts != 0)
    return invalid_argument(
        fmt::format("a sequence of {} tokens cannot be divided over --context-parallel-size {}: each rank "
                    "has one piece from its front and one from its back",
                    config.sequence_length, context),
        "--seq-length " + multiples_around(config.sequence_length, parts));
  if (const int parts = tensor * context; sequence_parallel && config.sequence_length % parts != 0)
    return invalid_argument(
        fmt::format("--sequence-parallel divides a sequence of {} tokens over {} ranks{}, which does not go",
                    config.sequence_length, parts,
                    context > 1 ? fmt::format(" ({} tensor x {} context)", tensor, context) : std::string()),
        "--seq-length " + multiples_around(config.sequence_length, parts));
  if (const int stages = pipeline * chunks; config.layers < stages)
    return invalid_argument(fmt::format("{} layers cannot be divided over {} stages ({} ranks x {} chunks)",
                                        config.layers, stages, pipeline, chunks),
                            fmt::format("--num-layers {} or more, or fewer stages", stages));
  return {};
}

std::vector<ModelTensor> tensors_of(const TransformerConfig& config) {
  std::vector<ModelTensor> tensors;
  const NormTensors norm{config.norm == NormKind::kLayerNorm, config.hidden};
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    tensors.push_back({name + ".weight", {out, in}});
    if (bias) tensors.push_back({name + ".bias", {out}});
  };
  tensors.push_back({"embedding.word_embeddings.weight", {config.vocabulary, config.hidden}});
  if (config.position == PositionKind::kLearned)
    tensors.push_back({"embedding.position_embeddings.weight", {config.positions, config.hidden}});
  for (int layer = 0; layer < config.layers; ++layer) {
    const std::string name = fmt::format("decoder.layers.{}.", layer);
    norm.add_to(tensors, name + "input_layernorm");
    linear(name + "self_attention.linear_qkv", config.qkv_size(), config.hidden, config.has_qkv_bias());
    linear(name + "self_attention.linear_proj", config.hidden, config.query_size(), config.bias);
    norm.add_to(tensors, name + "pre_mlp_layernorm");
    linear(name + "mlp.linear_fc1", config.fc1_size(), config.hidden, config.bias);
    linear(name + "mlp.linear_fc2", config.hidden, config.ffn, config.bias);
  }
  norm.add_to(tensors, "decoder.final_layernorm");
  if (!config.tied) tensors.push_back({"output_layer.weight", {config.vocabulary, config.hidden}});
  return tensors;
}

std::int64_t parameters_of(const TransformerConfig& config) {
  const std::int64_t h = config.hidden, norm = config.norm == NormKind::kLayerNorm ? 2 * h : h;
  const std::int64_t words = std::int64_t(config.vocabulary) * h;
  const std::int64_t matrices = h * (config.qkv_size() + config.query_size() + config.fc1_size() + config.ffn);
  const std::int64_t biases =
      (config.has_qkv_bias() ? config.qkv_size() : 0) + (config.bias ? config.fc1_size() + 2 * h : 0);
  const std::int64_t positions = config.position == PositionKind::kLearned ? config.positions * h : 0;
  return words * (config.tied ? 1 : 2) + positions + config.layers * (matrices + biases + 2 * norm) + norm;
}

double flops_per_token(const TransformerConfig& config) {
  const double h = config.hidden, query = double(config.query_size());
  const double matrices = h * (double(config.qkv_size()) + query + double(config.fc1_size()) + config.ffn);
  const double attention = query * config.sequence_length;  // scores and their use, each over half of the sequence
  return 6 * (config.layers * (matrices + attention) + h * config.vocabulary);
}

std::string to_string(const TransformerConfig& config) {
  return fmt::format(
      "GPT: {} layers of {}, {} heads{}, {} positions, vocabulary {}: {:.2f} M parameters", config.layers,
      config.hidden, config.heads,
      config.query_groups == config.heads ? std::string() : fmt::format(" in {} groups", config.query_groups),
      config.positions, config.vocabulary, double(parameters_of(config)) / 1e6);
}

}  // namespace tutti
