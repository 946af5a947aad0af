// First what can be said in the words of options, then names and shapes. A weight that the checkpoint has and the model
// has not is as wrong as one that is missing: a model of fewer layers, or without biases, is another model, and would
// train on as if nothing were lost.
#include "tutti/models/gpt/same_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tutti/base/text.h"
#include "tutti/checkpoint/format/manifest.h"

namespace tutti::gpt {
namespace {

// A fact under its name in the checkpoint, and as the command line has it.
struct Fact {
  const char* name;
  const char* option;
  std::vector<const char*> kinds;  // by number; empty: it is a number
  bool of_rotary = false;          // means nothing to other positions
  bool in_tensors = false;         // may be absent, because the names of tensors tell as well
};

const std::vector<Fact>& facts() {
  static const std::vector<Fact> facts = {
      {.name = "heads", .option = "--num-attention-heads"},
      {.name = "query_groups", .option = "--num-query-groups (or as many as heads)"},
      {.name = "position_embedding_type",
       .option = "--position-embedding-type",
       .kinds = {"learned_absolute", "rope", "none"}},
      {.name = "activation", .option = "the activation", .kinds = {"GELU", "--swiglu", "--squared-relu"}},
      {.name = "normalization", .option = "--normalization", .kinds = {"LayerNorm", "RMSNorm"}, .in_tensors = true},
      {.name = "rotary_base", .option = "--rotary-base", .of_rotary = true},
      {.name = "rotary_percent", .option = "--rotary-percent", .of_rotary = true},
      {.name = "norm_epsilon", .option = "--norm-epsilon"}};
  return facts;
}

std::string words_of(const Fact& fact, double value) {
  const auto kind = std::size_t(value);
  return value >= 0 && kind < fact.kinds.size() ? fact.kinds[kind] : fmt::format("{}", value);
}

Error another_model(const CheckpointReader& saved, const std::string& why, std::string hint) {
  return Error{.code = Code::kMismatch,
               .detail = fmt::format("the checkpoint {} is of another model: {}", saved.folder(), why),
               .hint = std::move(hint)};
}

// Those that are there and differ, or those that are not there.
Status check_facts(const CheckpointReader& saved, const GptShape& shape, bool absent) {
  const CheckpointValues wanted = model_facts(shape);
  for (const Fact& fact : facts()) {
    if (fact.of_rotary && shape.position != PositionKind::kRotary) continue;
    const auto there = real_number(saved.facts().values, fact.name), here = real_number(wanted, fact.name);
    if (there == here || there.has_value() == absent || (absent && fact.in_tensors)) continue;
    if (absent)
      return another_model(saved, fmt::format("it does not say with which {} it was saved", fact.option),
                           "pretrain_gpt and tutti ckpt gpt2 make checkpoints that do");
    return another_model(saved,
                         fmt::format("it was saved with {} {}, and {} is given", fact.option, words_of(fact, *there),
                                     words_of(fact, *here)),
                         "give the options of the run that saved it");
  }
  return {};
}

std::vector<ExpectedTensor> weights_of(const Options& options) {
  const DType dtype = options.precision == Precision::kF64 ? DType::kF64 : DType::kF32;
  std::vector<ExpectedTensor> wanted;
  for (const GptTensor& tensor : tensors_of(options.shape))
    wanted.push_back({{tensor.name, ""}, dtype, TensorShape(tensor.shape.begin(), tensor.shape.end())});
  return wanted;
}

std::vector<ExpectedTensor> with_state(const std::vector<ExpectedTensor>& weights, const UpdateRule& rule) {
  std::vector<ExpectedTensor> wanted = weights;
  for (const ExpectedTensor& weight : weights) {
    for (const StateKind& kind : state_kinds(rule))
      wanted.push_back({{weight.key.name, kind.name}, weight.dtype, weight.shape});
    wanted.push_back({{weight.key.name, "step"}, DType::kI64, {}});
  }
  return wanted;
}

// Weights, not what an optimizer keeps for them.
std::vector<std::string> other_weights(const CheckpointReader& saved, const std::vector<ExpectedTensor>& wanted) {
  std::set<std::string> known;
  for (const ExpectedTensor& weight : wanted) known.insert(weight.key.name);
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
std::vector<std::string> options_with(const std::vector<std::string>& weights, const GptShape& shape) {
  std::int64_t layers = shape.layers;
  std::set<std::string> found;
  for (const std::string& name : weights) {
    if (const auto layer = layer_of(name); layer && *layer >= shape.layers) {
      layers = std::max(layers, *layer + 1);
    } else if (name == "output_layer.weight") {
      found.insert("--untie-embeddings-and-output-weights");
    } else if (name.ends_with("layernorm.bias")) {
      found.insert("--normalization LayerNorm");
    } else if (name.ends_with(".bias")) {
      found.insert("no --disable-bias-linear");
    }
  }
  if (layers > shape.layers) found.insert(fmt::format("--num-layers {}", layers));
  return {found.begin(), found.end()};
}

// By SampleOrder's number.
std::string option_of_order(std::int64_t order) {
  constexpr const char* kOptions[] = {"--dataloader-type single", "--dataloader-type cyclic --no-data-sharding",
                                      "--dataloader-type cyclic"};
  return order >= 0 && order < std::ssize(kOptions) ? kOptions[order] : fmt::format("--dataloader-type {}", order);
}

}  // namespace

CheckpointValues model_facts(const GptShape& shape) {
  return {{"heads", std::int64_t(shape.heads)},
          {"query_groups", std::int64_t(shape.groups)},
          {"position_embedding_type", std::int64_t(shape.position)},
          {"activation", std::int64_t(shape.activation)},
          {"normalization", std::int64_t(shape.norm)},
          {"rotary_base", shape.rotary_base},
          {"rotary_percent", shape.rotary_percent},
          {"norm_epsilon", shape.norm_epsilon}};
}

Status check_same_model(const CheckpointReader& saved, const Options& options, const UpdateRule* rule) {
  TUTTI_TRY(check_facts(saved, options.shape, false));
  const auto weights = weights_of(options);
  TensorMatch match = saved.compare(weights);
  match.extra = other_weights(saved, weights);
  if (!match.whole()) {
    const auto those = options_with(match.extra, options.shape);
    return another_model(saved, text_of(match),
                         "give the options of the run that saved it" + (those.empty() ? "" : ": " + join(those, ", ")));
  }
  TUTTI_TRY(check_facts(saved, options.shape, true));
  if (rule == nullptr) return {};
  match = saved.compare(with_state(weights, *rule));
  if (match.whole()) return {};
  return Error{.code = Code::kMismatch,
               .detail = fmt::format("the checkpoint {} is of this model, but not with this optimizer's state: {}",
                                     saved.folder(), text_of(match)),
               .hint = "give the --optimizer of the run that saved it, or --no-load-optim to begin its state anew"};
}

CheckpointValues data_facts(const Options& options) {
  return {{"sequence_length", std::int64_t(options.shape.sequence_length)},
          {"sample_order", std::int64_t(options.order)}};
}

std::vector<std::string> changes_of_data(const CheckpointReader& saved, const Options& options) {
  const CheckpointValues& then = saved.facts().data;
  const CheckpointValues now = data_facts(options);
  std::vector<std::string> changes;
  const auto compare = [&](const char* fact, const char* so, const auto& in_words) {
    const auto there = whole_number(then, fact), here = whole_number(now, fact);
    if (!there || there == here) return;
    changes.push_back(fmt::format(
        "the checkpoint {} was saved with {}, and {} is given: the {} samples behind {}, so some of the data "
        "comes twice and some never (--finetune takes the weights alone and begins the data anew)",
        saved.folder(), in_words(*there), in_words(*here), whole_number(then, "consumed_samples").value_or(0), so));
  };
  compare("sequence_length", "were of that length",
          [](std::int64_t tokens) { return fmt::format("--seq-length {}", tokens); });
  compare("sample_order", "were the first in that order", [](std::int64_t order) { return option_of_order(order); });
  return changes;
}

Status check_same_seed(const CheckpointReader& saved, const Options& options) {
  const auto there = whole_number(saved.facts().data, "seed");
  if (there == std::int64_t(options.seed)) return {};
  return Error{.code = Code::kMismatch,
               .detail = fmt::format("the checkpoint {} is of another run: {}, and --seed {} is given", saved.folder(),
                                     there ? fmt::format("it was saved with --seed {}", *there) : "it has no seed",
                                     options.seed),
               .hint = "samples and dropout hang on the seed: give the same, or for its weights alone --finetune"};
}

}  // namespace tutti::gpt
