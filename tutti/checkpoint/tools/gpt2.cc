// Both directions are a TensorSource whose tensors are those of another one, translated as they are read: so a
// checkpoint is made as `tutti ckpt import` makes it, and a file as `extract` does, with the checks of these.
#include "tutti/checkpoint/tools/gpt2.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <initializer_list>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <utility>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/format/manifest.h"
#include "tutti/checkpoint/io/replace_file.h"
#include "tutti/checkpoint/tools/elements.h"
#include "tutti/checkpoint/tools/rewrite.h"

namespace tutti {
namespace {

// `sizes` of a tensor of Hugging Face, a letter for each dimension: hidden, three times hidden (q), the MLP's (f),
// vocabulary, sequence.
struct Pair {
  const char* there;
  const char* here;
  bool transposed;
  std::string_view sizes;
};
constexpr Pair kOutside[] = {{"wte.weight", "embedding.word_embeddings.weight", false, "vh"},
                             {"wpe.weight", "embedding.position_embeddings.weight", false, "sh"},
                             {"ln_f.weight", "decoder.final_layernorm.weight", false, "h"},
                             {"ln_f.bias", "decoder.final_layernorm.bias", false, "h"}};
constexpr Pair kInLayer[] = {{"ln_1.weight", "input_layernorm.weight", false, "h"},
                             {"ln_1.bias", "input_layernorm.bias", false, "h"},
                             {"attn.c_attn.weight", "self_attention.linear_qkv.weight", true, "hq"},
                             {"attn.c_attn.bias", "self_attention.linear_qkv.bias", false, "q"},
                             {"attn.c_proj.weight", "self_attention.linear_proj.weight", true, "hh"},
                             {"attn.c_proj.bias", "self_attention.linear_proj.bias", false, "h"},
                             {"ln_2.weight", "pre_mlp_layernorm.weight", false, "h"},
                             {"ln_2.bias", "pre_mlp_layernorm.bias", false, "h"},
                             {"mlp.c_fc.weight", "mlp.linear_fc1.weight", true, "hf"},
                             {"mlp.c_fc.bias", "mlp.linear_fc1.bias", false, "f"},
                             {"mlp.c_proj.weight", "mlp.linear_fc2.weight", true, "fh"},
                             {"mlp.c_proj.bias", "mlp.linear_fc2.bias", false, "h"}};
constexpr std::int64_t kMostHeads = 1 << 20;
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

Error no_gpt2(const TensorSource& source, const std::string& why) {
  return Error{.code = Code::kMismatch, .detail = fmt::format("{} is no GPT-2: {}", source.path(), why)};
}

// A tensor of one side as the other has it, in f32.
class TranslatedBytes : public PackedBytes {
 public:
  TranslatedBytes(const TensorSource& source, const TensorKey& key, bool transposed)
      : source_(source), key_(key), tensor_(*source.find(key)), transposed_(transposed) {}
  Status read(std::uint64_t begin, std::span<std::byte> into) override {
    if (values_.empty()) TUTTI_TRY(load());
    std::memcpy(into.data(), reinterpret_cast<const std::byte*>(values_.data()) + begin, into.size());
    return {};
  }

 private:
  Status load() {
    if (tensor_.elements() == 0) return {};
    const std::uint64_t rows = tensor_.shape.empty() ? 1 : tensor_.shape[0], columns = tensor_.elements() / rows;
    std::vector<std::byte> bytes(tensor_.elements() * tensor_.element_bytes);
    TUTTI_TRY(source_.read(key_, bytes));
    values_.resize(tensor_.elements());
    std::vector<double> numbers(columns);
    for (std::uint64_t row = 0; row < rows; ++row) {
      to_doubles(tensor_.dtype, bytes.data() + row * columns * tensor_.element_bytes, columns, numbers.data());
      for (std::uint64_t column = 0; column < columns; ++column)
        values_[transposed_ ? column * rows + row : row * columns + column] = float(numbers[column]);
    }
    return {};
  }

  const TensorSource& source_;
  const TensorKey key_;
  const SourceTensor& tensor_;
  const bool transposed_;
  std::vector<float> values_;
};

using Translate = std::optional<Gpt2Name> (*)(std::string_view);

// The whole model under the names of the other side. `source` outlives it.
class TranslatedModel : public TensorSource {
 public:
  static Result<TranslatedModel> of(const TensorSource& source, Translate translate) {
    TranslatedModel model(source);
    for (const auto& [key, tensor] : source.tensors())
      if (key.state.empty() && !is_beside(key.name)) TUTTI_TRY(model.add(key, tensor, translate(key.name)));
    return model;
  }
  Result<std::unique_ptr<PackedBytes>> open_part(const TensorKey& key, std::size_t) const override {
    const auto& [old, transposed] = from_.at(key);
    return std::unique_ptr<PackedBytes>(std::make_unique<TranslatedBytes>(source_, old, transposed));
  }
  std::uint64_t bytes() const {
    std::uint64_t bytes = 0;
    for (const auto& [key, tensor] : tensors_) bytes += tensor.bytes_here();
    return bytes;
  }

 private:
  explicit TranslatedModel(const TensorSource& source) : source_(source) { path_ = source.path(); }

  Status add(const TensorKey& key, const SourceTensor& tensor, const std::optional<Gpt2Name>& to) {
    if (!to) return no_gpt2(source_, fmt::format("it has a tensor {}", key.name));
    if (tensor.dtype != "F32" && tensor.dtype != "F16" && tensor.dtype != "BF16")
      return Error{.code = Code::kUnsupported,
                   .detail = fmt::format("{} in {} is {}, and only F32, F16 and BF16 are turned into another model",
                                         key.name, path_, tensor.dtype)};
    TensorShape shape = tensor.shape;
    if (to->transposed && shape.size() != 2)
      return Error{.code = Code::kMismatch,
                   .detail = fmt::format("{} in {} is no matrix: {}", key.name, path_, shape_text(shape))};
    if (to->transposed) std::swap(shape[0], shape[1]);
    const TensorKey name{to->name, ""};
    if (!from_.emplace(name, std::pair(key, to->transposed)).second)
      return no_gpt2(source_, fmt::format("{} is not the only tensor that becomes {}", key.name, to->name));
    const TensorPart all{TensorBox::whole(shape), path_};
    tensors_[name] = {.dtype = "F32", .element_bytes = sizeof(float), .shape = shape, .parts = {all}};
    return {};
  }

  const TensorSource& source_;
  std::map<TensorKey, std::pair<TensorKey, bool>> from_;  // the tensor of the source; whether it is transposed
};

// Every layer has every tensor, from 0 on.
Status check_whole(const TensorSource& model, Side side, std::string_view layers) {
  std::size_t found = 0;
  const auto missing = [&](const std::string& name) { return no_gpt2(model, fmt::format("it lacks {}", name)); };
  for (const Pair& pair : kOutside) {
    if (!model.find({pair.*side, ""})) return missing(pair.*side);
    ++found;
  }
  for (int layer = 0; found < model.tensors().size(); ++layer)
    for (const Pair& pair : kInLayer) {
      const std::string name = fmt::format("{}{}.{}", layers, layer, pair.*side);
      if (!model.find({name, ""})) return missing(name);
      ++found;
    }
  return {};
}

std::int64_t layers_of(const TensorSource& model) {
  return std::int64_t((model.tensors().size() - std::size(kOutside)) / std::size(kInLayer));
}

// That the sizes of all tensors fit together. After check_whole().
Status check_shapes(const TensorSource& model, Side side, std::string_view layers) {
  std::map<char, std::uint64_t> sizes;
  const auto check = [&](const Pair& pair, const std::string& there, const std::string& name) -> Status {
    TensorShape shape = model.find({name, ""})->shape;
    if (side == &Pair::here && pair.transposed && shape.size() == 2) std::swap(shape[0], shape[1]);
    std::string expected;
    bool fits = shape.size() == pair.sizes.size();
    for (std::size_t d = 0; d < pair.sizes.size(); ++d) {
      if (fits) sizes.try_emplace(pair.sizes[d], shape[d]);
      const auto size = sizes.find(pair.sizes[d]);
      fits = fits && size->second == shape[d];
      expected += (d > 0 ? ", " : "") + (size == sizes.end() ? std::string("any") : std::to_string(size->second));
    }
    if (fits) return {};
    return no_gpt2(model, fmt::format("{} is {}, expected [{}]", there, shape_text(shape), expected));
  };
  const TensorShape& words = model.find({kOutside[0].*side, ""})->shape;
  if (words.size() != 2) return no_gpt2(model, "wte.weight is no matrix: " + shape_text(words));
  sizes['h'] = words[1];
  sizes['q'] = 3 * words[1];
  for (const Pair& pair : kOutside) TUTTI_TRY(check(pair, pair.there, pair.*side));
  for (std::int64_t layer = 0; layer < layers_of(model); ++layer)
    for (const Pair& pair : kInLayer)
      TUTTI_TRY(check(pair, fmt::format("{}{}.{}", kLayersThere, layer, pair.there),
                      fmt::format("{}{}.{}", layers, layer, pair.*side)));
  return {};
}

// A GPT-2 uses its word embedding as the output layer.
Status check_tied(const TensorSource& source) {
  const auto* const head = source.find({"lm_head.weight", ""});
  if (!head) return {};
  TensorKey words{"transformer.wte.weight", ""};
  if (!source.find(words)) words.name = "wte.weight";
  const auto& embedding = *source.find(words);
  bool same = head->dtype == embedding.dtype && head->shape == embedding.shape;
  if (same) {
    std::vector<std::byte> output(head->elements() * head->element_bytes), input(output.size());
    TUTTI_TRY(source.read({"lm_head.weight", ""}, output));
    TUTTI_TRY(source.read(words, input));
    same = output == input;
  }
  if (same) return {};
  return Error{.code = Code::kUnsupported,
               .detail = fmt::format("{}: lm_head.weight differs from wte.weight, and only models with tied embeddings "
                                     "are converted",
                                     source.path())};
}

// What of a model its tensors do not show, as config.json of Hugging Face's transformers says it.
struct Gpt2Config {
  std::optional<std::int64_t> heads, layers;
  double norm_epsilon = 1e-5;
};

// That of the folder where the weights are; what it does not say is as in GPT-2. kUnsupported: pretrain_gpt computes
// something else.
Result<Gpt2Config> read_config(const TensorSource& source) {
  namespace fs = std::filesystem;
  constexpr std::uint64_t kMost = std::uint64_t(1) << 20;
  std::error_code error;
  const fs::path place = source.path();
  const std::string path = ((fs::is_directory(place, error) ? place : place.parent_path()) / "config.json").string();
  Gpt2Config config;
  if (!fs::exists(path, error)) return config;
  const auto json = nlohmann::json::parse(TUTTI_TRY(read_file(path, kMost)), nullptr, false);
  if (!json.is_object()) return Error{.code = Code::kCorrupt, .detail = path + " is no JSON object"};
  const auto text_of = [&](const char* name) { return json.contains(name) ? json[name].dump(-1, ' ', true) : ""; };
  const auto unexpected = [&](const char* name, const std::string& expected) {
    return Error{.code = Code::kCorrupt,
                 .detail = fmt::format("{}: {} is {}, expected {}", path, name, text_of(name), expected)};
  };
  const auto count = [&](std::initializer_list<const char*> names, std::optional<std::int64_t>& into) -> Status {
    for (const char* const name : names) {
      if (!json.contains(name)) continue;
      into = parse_int(text_of(name));
      if (!into || *into < 1 || *into > kMostHeads)
        return unexpected(name, fmt::format("a whole number from 1 to {}", kMostHeads));
    }
    return {};
  };
  TUTTI_TRY(count({"n_head", "num_attention_heads"}, config.heads));
  TUTTI_TRY(count({"n_layer", "num_hidden_layers"}, config.layers));
  if (const std::string epsilon = text_of("layer_norm_epsilon"); !epsilon.empty()) {
    config.norm_epsilon = parse_double(epsilon).value_or(-1);
    if (!std::isfinite(config.norm_epsilon) || config.norm_epsilon <= 0)
      return unexpected("layer_norm_epsilon", "a number above 0");
  }
  const auto check = [&](const char* name, const std::vector<std::string>& known) -> Status {
    const std::string text = text_of(name);
    if (text.empty() || std::find(known.begin(), known.end(), text) != known.end()) return {};
    return Error{
        .code = Code::kUnsupported,
        .detail = fmt::format("{} has {} {}, and pretrain_gpt computes with {}", path, name, text, known.front())};
  };
  // Three names of one formula.
  TUTTI_TRY(check("activation_function", {"\"gelu_new\"", "\"gelu_pytorch_tanh\"", "\"gelu_fast\""}));
  TUTTI_TRY(check("scale_attn_weights", {"true"}));
  TUTTI_TRY(check("scale_attn_by_inverse_layer_idx", {"false"}));
  if (const std::string tied = text_of("tie_word_embeddings"); !tied.empty() && tied != "true")
    return Error{.code = Code::kUnsupported,
                 .detail = fmt::format("{} has tie_word_embeddings {}, and only models with tied embeddings are "
                                       "converted",
                                       path, tied)};
  return config;
}

Result<std::int64_t> heads_of(const TensorSource& source, std::uint64_t hidden, std::optional<std::int64_t> in_config,
                              std::int64_t given) {
  constexpr std::uint64_t kHead = 64;
  if (given > 0 && in_config && *in_config != given)
    return invalid_argument(
        fmt::format("--heads {} is given, and config.json beside {} says {}", given, source.path(), *in_config),
        "leave --heads out");
  const std::int64_t heads = given > 0 ? given : in_config.value_or(0);
  if (heads == 0 && hidden >= kHead && hidden % kHead == 0) return std::int64_t(hidden / kHead);
  if (heads == 0)
    return Error{.code = Code::kMismatch,
                 .detail = fmt::format("{} has {} numbers a token, which are not heads of {} numbers as in GPT-2",
                                       source.path(), hidden, kHead),
                 .hint = "say how many heads of attention it has: --heads N, or config.json beside it"};
  if (hidden % std::uint64_t(heads) != 0)
    return no_gpt2(source, fmt::format("{} numbers a token cannot be divided into {} heads", hidden, heads));
  return heads;
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

Result<Gpt2Report> import_gpt2(const TensorSource& source, const std::string& folder, std::int64_t given_heads) {
  const TranslatedModel model = TUTTI_TRY(TranslatedModel::of(source, gpt2_name_here));
  TUTTI_TRY(check_whole(model, &Pair::here, kLayersHere));
  TUTTI_TRY(check_shapes(model, &Pair::here, kLayersHere));
  TUTTI_TRY(check_tied(source));
  const TensorShape& words = model.find({"embedding.word_embeddings.weight", ""})->shape;
  const Gpt2Config config = TUTTI_TRY(read_config(source));
  if (const std::int64_t layers = layers_of(model); config.layers.value_or(layers) != layers)
    return no_gpt2(source, fmt::format("its config.json has n_layer {}, and the weights have {} layer{}",
                                       *config.layers, layers, layers == 1 ? "" : "s"));
  const std::int64_t heads = TUTTI_TRY(heads_of(source, words[1], config.heads, given_heads));
  // The fields of the config that are compared (tutti/models/transformer/same_model.cc).
  const CheckpointFacts facts{.values = {{"heads", heads},
                                         {"query_groups", heads},
                                         {"position_embedding_type", std::int64_t(0)},
                                         {"activation", std::int64_t(0)},
                                         {"normalization", std::int64_t(0)},
                                         {"rotary_base", 10000.0},
                                         {"rotary_percent", 1.0},
                                         {"norm_epsilon", config.norm_epsilon}}};
  const std::string path = TUTTI_TRY(write_checkpoint(model, deal_out(model, 1, ShardSplit::kWhole), facts, folder));
  return Gpt2Report{model.tensors().size(), model.bytes(), path};
}

Result<Gpt2Report> export_gpt2(const TensorSource& source, const std::string& file) {
  const TranslatedModel model = TUTTI_TRY(TranslatedModel::of(source, gpt2_name_there));
  TUTTI_TRY(check_whole(model, &Pair::there, kLayersThere));
  TUTTI_TRY(check_shapes(model, &Pair::there, kLayersThere));
  if (source.facts() && whole_number(source.facts()->values, "activation").value_or(0) != 0)
    return no_gpt2(source, "its MLPs have no GELU");
  if (TUTTI_TRY(replaceable_file(file)).existing)
    return invalid_argument(fmt::format("{} is there already", file), "give another name");
  std::vector<CopiedBox> boxes;
  for (const auto& [key, tensor] : model.tensors()) boxes.push_back({key, TensorBox::whole(tensor.shape)});
  SharedProgress progress(model.bytes(), {});
  TUTTI_TRY(replace_file(file, [&](int fd, const std::string& name) {
    return copy_to_file(model, boxes, {{"format", "pt"}}, fd, name, progress).status();
  }));
  return Gpt2Report{model.tensors().size(), model.bytes(), file};
}

}  // namespace tutti
