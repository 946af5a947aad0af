#include "tutti/checkpoint/tools/gpt2.h"

#include <fmt/format.h>

#include <span>
#include <vector>

#include "tutti/base/text.h"
#include "tutti/checkpoint/facts.h"
#include "tutti/checkpoint/folder.h"
#include "tutti/checkpoint/safetensors.h"
#include "tutti/checkpoint/writer.h"

namespace tutti {
namespace {

struct Pair {
  const char* there;
  const char* here;
  bool transposed;
};
constexpr Pair kOutside[] = {{"wte.weight", "embedding.word_embeddings.weight", false},
                             {"wpe.weight", "embedding.position_embeddings.weight", false},
                             {"ln_f.weight", "decoder.final_layernorm.weight", false},
                             {"ln_f.bias", "decoder.final_layernorm.bias", false}};
constexpr Pair kInLayer[] = {{"ln_1.weight", "input_layernorm.weight", false},
                             {"ln_1.bias", "input_layernorm.bias", false},
                             {"attn.c_attn.weight", "self_attention.linear_qkv.weight", true},
                             {"attn.c_attn.bias", "self_attention.linear_qkv.bias", false},
                             {"attn.c_proj.weight", "self_attention.linear_proj.weight", true},
                             {"attn.c_proj.bias", "self_attention.linear_proj.bias", false},
                             {"ln_2.weight", "pre_mlp_layernorm.weight", false},
                             {"ln_2.bias", "pre_mlp_layernorm.bias", false},
                             {"mlp.c_fc.weight", "mlp.linear_fc1.weight", true},
                             {"mlp.c_fc.bias", "mlp.linear_fc1.bias", false},
                             {"mlp.c_proj.weight", "mlp.linear_fc2.weight", true},
                             {"mlp.c_proj.bias", "mlp.linear_fc2.bias", false}};
constexpr std::string_view kLayersThere = "h.", kLayersHere = "decoder.layers.";

using Side = const char* Pair::*;

std::optional<Gpt2Name> translated(std::string_view name, std::string_view layers, Side from, std::string_view others,
                                   Side to) {
  for (const Pair& pair : kOutside)
    if (name == pair.*from) return Gpt2Name{pair.*to, pair.transposed};
  if (!name.starts_with(layers)) return {};
  name.remove_prefix(layers.size());
  const auto point = name.find('.');
  if (point == name.npos || !parse_int(name.substr(0, point))) return {};
  for (const Pair& pair : kInLayer)
    if (name.substr(point + 1) == pair.*from)
      return Gpt2Name{fmt::format("{}{}.{}", others, name.substr(0, point), pair.*to), pair.transposed};
  return {};
}

// Kept beside the weights: masks of attention, and the word embedding as the output layer.
bool is_beside(std::string_view name) {
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") || name == "lm_head.weight";
}

struct Held {
  std::string name;
  TensorShape shape;
  std::vector<float> values;
};

Result<Held> read(const TensorSource& source, const TensorKey& key, const SourceTensor& tensor, const Gpt2Name& to) {
  if (tensor.known_dtype() != DType::kF32)
    return Error{.code = Code::kUnsupported,
                 .detail = fmt::format("{} in {} is {}, and only F32 is turned into another model", key.name,
                                       source.path(), tensor.dtype)};
  Held held{.name = to.name, .shape = tensor.shape, .values = std::vector<float>(tensor.elements())};
  TUTTI_TRY(source.read(key, std::as_writable_bytes(std::span(held.values))));
  if (!to.transposed) return held;
  if (tensor.shape.size() != 2)
    return Error{.code = Code::kMismatch,
                 .detail = fmt::format("{} in {} is no matrix: {}", key.name, source.path(), shape_text(tensor.shape))};
  const std::size_t rows = tensor.shape[0], columns = tensor.shape[1];
  std::vector<float> turned(held.values.size());
  for (std::size_t row = 0; row < rows; ++row)
    for (std::size_t column = 0; column < columns; ++column)
      turned[column * rows + row] = held.values[row * columns + column];
  held.values = std::move(turned);
  held.shape = {columns, rows};
  return held;
}

Error no_gpt2(const TensorSource& source, const std::string& why) {
  return Error{.code = Code::kMismatch, .detail = fmt::format("{} is no GPT-2: {}", source.path(), why)};
}

struct Model {
  std::vector<Held> tensors;
  std::uint64_t bytes = 0;
  const Held* find(std::string_view name) const {
    for (const Held& held : tensors)
      if (held.name == name) return &held;
    return nullptr;
  }
};

using Translate = std::optional<Gpt2Name> (*)(std::string_view);

Result<Model> read_all(const TensorSource& source, Translate translate) {
  Model model;
  for (const auto& [key, tensor] : source.tensors()) {
    if (!key.state.empty() || is_beside(key.name)) continue;
    const auto to = translate(key.name);
    if (!to) return no_gpt2(source, fmt::format("it has a tensor {}", key.name));
    model.tensors.push_back(TUTTI_TRY(read(source, key, tensor, *to)));
    model.bytes += model.tensors.back().values.size() * sizeof(float);
  }
  return model;
}

// Every layer has every tensor, from 0 on.
Status check_whole(const TensorSource& source, const Model& model, Side side, std::string_view layers) {
  std::size_t found = 0;
  const auto missing = [&](const std::string& name) { return no_gpt2(source, fmt::format("it lacks {}", name)); };
  for (const Pair& pair : kOutside) {
    if (!model.find(pair.*side)) return missing(pair.*side);
    ++found;
  }
  for (int layer = 0; found < model.tensors.size(); ++layer)
    for (const Pair& pair : kInLayer) {
      const std::string name = fmt::format("{}{}.{}", layers, layer, pair.*side);
      if (!model.find(name)) return missing(name);
      ++found;
    }
  return {};
}

}  // namespace

std::optional<Gpt2Name> gpt2_name_here(std::string_view name) {
  constexpr std::string_view kPrefix = "transformer.";
  if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
  return translated(name, kLayersThere, &Pair::there, kLayersHere, &Pair::here);
}
std::optional<Gpt2Name> gpt2_name_there(std::string_view name) {
  return translated(name, kLayersHere, &Pair::here, kLayersThere, &Pair::there);
}

Result<Gpt2Report> import_gpt2(const TensorSource& source, const std::string& folder, std::int64_t heads) {
  constexpr std::uint64_t kHead = 64;
  const Model model = TUTTI_TRY(read_all(source, gpt2_name_here));
  TUTTI_TRY(check_whole(source, model, &Pair::here, kLayersHere));
  const std::uint64_t hidden = model.find("embedding.word_embeddings.weight")->shape.at(1);
  if (heads == 0) heads = std::int64_t(hidden / kHead);
  if (heads == 0)
    return Error{.code = Code::kMismatch,
                 .detail = fmt::format("{} has {} numbers a token, fewer than the {} of one head of GPT-2's",
                                       source.path(), hidden, kHead),
                 .hint = "say how many heads of attention it has: --heads N"};
  if (hidden % std::uint64_t(heads) != 0)
    return no_gpt2(source, fmt::format("{} numbers a token cannot be divided into {} heads", hidden, heads));
  std::vector<SavedBox> boxes;
  for (const Held& held : model.tensors)
    boxes.push_back({.key = {held.name, ""}, .dtype = DType::kF32, .shape = held.shape, .data = held.values.data()});
  // What pretrain_gpt looks at (tutti/models/gpt/same_model.cc).
  const CheckpointFacts facts{.values = {{"heads", heads},
                                         {"query_groups", heads},
                                         {"position_embedding_type", std::int64_t(0)},
                                         {"activation", std::int64_t(0)},
                                         {"normalization", std::int64_t(0)},
                                         {"rotary_base", 10000.0},
                                         {"rotary_percent", 1.0},
                                         {"norm_epsilon", 1e-5}}};
  TUTTI_TRY(save_checkpoint(folder, boxes, facts));
  return Gpt2Report{model.tensors.size(), model.bytes, folder + "/" + checkpoint_folder_name(0)};
}

Result<Gpt2Report> export_gpt2(const TensorSource& source, const std::string& file) {
  const Model model = TUTTI_TRY(read_all(source, gpt2_name_there));
  TUTTI_TRY(check_whole(source, model, &Pair::there, kLayersThere));
  if (source.facts() && whole_number(source.facts()->values, "activation").value_or(0) != 0)
    return no_gpt2(source, "its MLPs have no GELU");
  std::vector<SafetensorsTensor> tensors;
  for (const Held& held : model.tensors) tensors.push_back({held.name, DType::kF32, held.shape, held.values.data()});
  TUTTI_TRY(write_safetensors(file, tensors, {{"format", "pt"}}));
  return Gpt2Report{model.tensors.size(), model.bytes, file};
}

}  // namespace tutti
