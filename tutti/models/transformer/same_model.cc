// First the fields of the config, then names and shapes of tensors. A weight that only the checkpoint has is as wrong
// as one that is missing: a model of fewer layers, or without biases, is another model, and would train as if nothing
// were lost.
#include "tutti/models/transformer/same_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <vector>

#include "tutti/base/text.h"
#include "tutti/checkpoint/format/manifest.h"

namespace tutti {
namespace {

// A field of the config, under its name in a checkpoint and on the command line.
struct Field {
  const char* name;
  const char* option;
  CheckpointValue (*value)(const TransformerConfig& config);
  std::vector<const char*> kinds = {};  // texts of an enumeration; empty: it is a number
  bool of_rotary = false;               // means nothing to other positions
  bool in_tensors = false;              // may be absent, because the names of tensors show it as well
};

template <auto member>
CheckpointValue value_of(const TransformerConfig& config) {
  if constexpr (std::is_same_v<std::decay_t<decltype(config.*member)>, double>) {
    return config.*member;
  } else {
    return std::int64_t(config.*member);
  }
}

const std::vector<Field>& fields() {
  using Config = TransformerConfig;
  static const std::vector<Field> fields = {
      {.name = "heads", .option = "--num-attention-heads", .value = value_of<&Config::heads>},
      {.name = "query_groups",
       .option = "--num-query-groups (or as many as heads)",
       .value = value_of<&Config::query_groups>},
      {.name = "position_embedding_type",
       .option = "--position-embedding-type",
       .value = value_of<&Config::position>,
       .kinds = {"learned_absolute", "rope", "none"}},
      {.name = "activation",
       .option = "the activation",
       .value = value_of<&Config::activation>,
       .kinds = {"GELU", "--swiglu", "--squared-relu"}},
      {.name = "normalization",
       .option = "--normalization",
       .value = value_of<&Config::norm>,
       .kinds = {"LayerNorm", "RMSNorm"},
       .in_tensors = true},
      {.name = "rotary_base", .option = "--rotary-base", .value = value_of<&Config::rotary_base>, .of_rotary = true},
      {.name = "rotary_percent",
       .option = "--rotary-percent",
       .value = value_of<&Config::rotary_percent>,
       .of_rotary = true},
      {.name = "norm_epsilon", .option = "--norm-epsilon", .value = value_of<&Config::norm_epsilon>}};
  return fields;
}

std::string text_of(const Field& field, double value) {
  const auto kind = std::size_t(value);
  return value >= 0 && kind < field.kinds.size() ? field.kinds[kind] : fmt::format("{}", value);
}

Error another_model(const CheckpointReader& saved, const std::string& why, std::string hint) {
  return Error{.code = Code::kMismatch,
               .detail = fmt::format("the checkpoint {} is of another model: {}", saved.folder(), why),
               .hint = std::move(hint)};
}

// Compares the fields that the checkpoint has, or reports one that it has not.
Status check_fields(const CheckpointReader& saved, const TransformerConfig& config, bool absent) {
  const CheckpointValues wanted = config_values(config);
  for (const Field& field : fields()) {
    if (field.of_rotary && config.position != PositionKind::kRotary) continue;
    const auto there = real_number(saved.facts().values, field.name), here = real_number(wanted, field.name);
    if (there == here || there.has_value() == absent || (absent && field.in_tensors)) continue;
    if (absent)
      return another_model(saved, fmt::format("it does not say with which {} it was saved", field.option),
                           "pretrain_gpt and tutti ckpt gpt2 make checkpoints that do");
    return another_model(saved,
                         fmt::format("it was saved with {} {}, and {} is given", field.option, text_of(field, *there),
                                     text_of(field, *here)),
                         "give the options of the run that saved it");
  }
  return {};
}

std::vector<StateBox> weights_of(const TransformerConfig& config) {
  const DType dtype = config.precision == Precision::kF64 ? DType::kF64 : DType::kF32;
  std::vector<StateBox> wanted;
  for (const ModelTensor& tensor : tensors_of(config))
    wanted.push_back({{tensor.name, ""}, dtype, TensorShape(tensor.shape.begin(), tensor.shape.end())});
  return wanted;
}

std::vector<StateBox> with_state(const std::vector<StateBox>& weights, const UpdateRule& rule) {
  std::vector<StateBox> wanted = weights;
  for (const StateBox& weight : weights) {
    for (const StateKind& kind : state_kinds(rule))
      wanted.push_back({{weight.key.name, kind.name}, weight.dtype, weight.shape});
    wanted.push_back({{weight.key.name, "step"}, DType::kI64, {}});
  }
  return wanted;
}

// Weights, not what an optimizer keeps for them.
std::vector<std::string> other_weights(const CheckpointReader& saved, const std::vector<StateBox>& wanted) {
  std::set<std::string> known;
  for (const StateBox& weight : wanted) known.insert(weight.key.name);
  std::vector<std::string> others;
  for (const auto& [key, tensor] : saved.manifest().tensors)
    if (key.state.empty() && !known.contains(key.name)) others.push_back(key.name);
  return others;
}

std::string few_of(const std::vector<std::string>& names) {
  constexpr std::size_t kMost = 4;
  const std::string few = join(std::span(names).first(std::min(names.size(), kMost)), ", ");
  return names.size() > kMost ? fmt::format("{} and {} more", few, names.size() - kMost) : few;
}

std::string text_of(const TensorMatch& match) {
  std::vector<std::string> troubles;
  if (!match.missing.empty()) troubles.push_back("it lacks " + few_of(match.missing));
  if (!match.misshapen.empty()) troubles.push_back(few_of(match.misshapen));
  if (!match.extra.empty()) troubles.push_back("it has more: " + few_of(match.extra));
  return join(troubles, "; ");
}

// The number in "decoder.layers.3.mlp.linear_fc1.bias"; none: it is of no layer.
std::optional<std::int64_t> layer_of(std::string_view name) {
  constexpr std::string_view kLayers = "decoder.layers.";
  if (!name.starts_with(kLayers)) return {};
  name.remove_prefix(kLayers.size());
  return parse_int(name.substr(0, name.find('.')));
}

// The options with which a model has these weights, as far as their names tell.
std::vector<std::string> options_with(const std::vector<std::string>& weights, const TransformerConfig& config) {
  std::int64_t layers = config.layers;
  std::set<std::string> found;
  for (const std::string& name : weights) {
    if (const auto layer = layer_of(name); layer && *layer >= config.layers) {
      layers = std::max(layers, *layer + 1);
    } else if (name == "output_layer.weight") {
      found.insert("--untie-embeddings-and-output-weights");
    } else if (name.ends_with("layernorm.bias")) {
      found.insert("--normalization LayerNorm");
    } else if (name.ends_with(".bias")) {
      found.insert("no --disable-bias-linear");
    }
  }
  if (layers > config.layers) found.insert(fmt::format("--num-layers {}", layers));
  return {found.begin(), found.end()};
}

}  // namespace

CheckpointValues config_values(const TransformerConfig& config) {
  CheckpointValues values;
  for (const Field& field : fields()) values.emplace(field.name, field.value(config));
  return values;
}

Status check_same_model(const CheckpointReader& saved, const TransformerConfig& config, const UpdateRule* rule) {
  TUTTI_TRY(check_fields(saved, config, false));
  const auto weights = weights_of(config);
  TensorMatch match = saved.compare(weights);
  match.extra = other_weights(saved, weights);
  if (!match.whole()) {
    const auto those = options_with(match.extra, config);
    return another_model(saved, text_of(match),
                         "give the options of the run that saved it" + (those.empty() ? "" : ": " + join(those, ", ")));
  }
  TUTTI_TRY(check_fields(saved, config, true));
  if (rule == nullptr) return {};
  match = saved.compare(with_state(weights, *rule));
  if (match.whole()) return {};
  return Error{
      .code = Code::kMismatch,
      .detail = fmt::format("the checkpoint {} is of this model, but not with this optimizer's state: {}",
                            saved.folder(), text_of(match)),
      .hint = "give the --optimizer of the run that saved it, or --no-load-optim to start its state from zero"};
}

}  // namespace tutti
