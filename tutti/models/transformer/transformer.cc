#include "tutti/models/transformer/transformer.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>

#include <cstdlib>
#include <string>

#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/tensor/cross_entropy.h"
#include "tutti/parallel/tensor/division.h"
#include "tutti/parallel/tensor/linear.h"

namespace tutti {
namespace {

using transformer::dtype_of;
using transformer::initial_weights;
using transformer::Scope;

// A row for each position. With sequence parallelism a rank adds its own rows only, and its gradient is a part.
class PositionEmbedding : public torch::nn::Module, public TensorParallelModule {
 public:
  PositionEmbedding(const TransformerConfig& config, const Parallel& parallel)
      : layout_(ParameterLayout::whole({std::uint64_t(config.positions), std::uint64_t(config.hidden)},
                                       parallel.divides_rows())) {
    const auto initial = initial_weights(config, "embedding.position_embeddings.weight", config.initial_deviation);
    weight_ = register_parameter("weight", draw_weights(layout_, initial, dtype_of(config)));
  }
  // i64 [rows, samples] to [rows, samples, hidden]
  at::Tensor forward(const at::Tensor& positions) { return at::embedding(weight_, positions); }
  ParameterLayout layout_of(std::string_view) const override { return layout_; }

 private:
  ParameterLayout layout_;
  at::Tensor weight_;
};

std::shared_ptr<VocabParallelEmbeddingImpl> make_word_table(const LayerContext& context, const char* name) {
  const TransformerConfig& config = context.config;
  return std::make_shared<VocabParallelEmbeddingImpl>(
      context.parallel.tensor,
      VocabParallelEmbeddingOptions{.words = config.vocabulary,
                                    .columns = config.hidden,
                                    .divisible = config.vocabulary_divisible_by,
                                    .sequence_parallel = context.parallel.sequence_parallel,
                                    .initial = initial_weights(config, name, config.initial_deviation),
                                    .dtype = dtype_of(config)});
}

LayerContext make_context(const TransformerConfig& given, Parallel parallel) {
  LayerContext context{.config = with_defaults(given), .parallel = std::move(parallel)};
  const TransformerConfig& config = context.config;
  check(config).or_throw();
  const Group &tensor = context.parallel.tensor, &along = context.parallel.context;
  check(config,
        {.tensor = ranks_of(tensor), .context = ranks_of(along), .sequence_parallel = context.parallel.divides_rows()})
      .or_throw();
  context.sequence = context_part(config.sequence_length, rank_in(along), ranks_of(along));
  context.rows = context.parallel.sequence_parallel ? tensor_part(context.sequence, rank_in(tensor), ranks_of(tensor))
                                                    : context.sequence;
  context.rotary = std::make_shared<RotaryPositions>(config);
  return context;
}

void copy_tensors(const torch::OrderedDict<std::string, at::Tensor>& from,
                  torch::OrderedDict<std::string, at::Tensor> into, const std::optional<at::Device>& device) {
  for (auto& entry : into) {
    const at::Tensor& source = from[entry.key()];
    entry.value().set_data(source.detach().to(device.value_or(source.device())).clone());
    entry.value().set_requires_grad(source.requires_grad());
  }
}

}  // namespace

Transformer::Transformer(TransformerConfig config, Parallel parallel, TransformerOptions options)
    : context_(make_context(config, std::move(parallel))),
      options_(std::move(options)),
      positions_(positions_of(context_.sequence).unsqueeze(1)) {
  if (options_.stages.empty()) options_.stages = {{.layers = {0, config.layers}}};
  bool has_last = false;
  for (const StageLayers& stage : options_.stages) {
    has_first_ = has_first_ || stage.is_first;
    has_last = has_last || stage.is_last;
  }
  if (has_first_ || (has_last && config.tied)) {
    embedding_ = register_module("embedding", std::make_shared<Scope>());
    word_embedding_ =
        embedding_->register_module("word_embeddings", make_word_table(context_, "embedding.word_embeddings.weight"));
    if (has_first_ && config.position == PositionKind::kLearned)
      position_embedding_ = embedding_->register_module(
          "position_embeddings", std::make_shared<PositionEmbedding>(context_.config, context_.parallel));
  }
  const auto decoder = register_module("decoder", std::make_shared<Scope>());
  const auto layers = decoder->register_module("layers", std::make_shared<Scope>());
  for (const StageLayers& stage : options_.stages) {
    auto& blocks = blocks_.emplace_back();
    for (int number = stage.layers.begin; number < stage.layers.end; ++number) {
      LayerContext layer = context_;
      layer.number = number;
      blocks.push_back(layers->register_module(std::to_string(number), make_block(layer, options_.block)));
    }
  }
  if (!has_last) return;
  final_norm_ = decoder->register_module("final_layernorm", std::make_shared<Norm>(config, context_.parallel));
  if (!config.tied) output_layer_ = register_module("output_layer", make_word_table(context_, "output_layer.weight"));
}

at::ScalarType Transformer::dtype() const { return dtype_of(config()); }

at::Device Transformer::device() const { return parameters().front().device(); }

std::vector<std::int64_t> Transformer::activation_sizes(std::int64_t micro_batch) const {
  return {rows_of(context_.rows), micro_batch, config().hidden};
}

at::Tensor Transformer::tied_weight() const {
  const bool is_tied = config().tied && ranks_of(parallel().embedding) > 1;
  return is_tied && word_embedding_ ? word_embedding_->weight : at::Tensor();
}

std::optional<int> Transformer::chunk_of(std::string_view parameter) const {
  constexpr std::string_view kLayers = "decoder.layers.", kWords = "embedding.word_embeddings.";
  std::vector<int> found;
  for (int chunk = 0; chunk < int(stages().size()); ++chunk) {
    const StageLayers& stage = stages()[std::size_t(chunk)];
    bool uses = false;
    if (parameter.starts_with(kLayers)) {
      const int layer = std::atoi(parameter.substr(kLayers.size()).data());
      uses = layer >= stage.layers.begin && layer < stage.layers.end;
    } else if (parameter.starts_with("embedding.")) {
      uses = stage.is_first || (stage.is_last && config().tied && parameter.starts_with(kWords));
    } else {
      uses = stage.is_last;
    }
    if (uses) found.push_back(chunk);
  }
  TUTTI_REQUIRE(!found.empty(), std::string(parameter), " is used by no stage of this rank");
  return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

ForwardContext Transformer::context_of(const MicroBatch& batch) {
  if (batch.tokens.defined() && positions_.device() != batch.tokens.device())
    positions_ = positions_.to(batch.tokens.device());
  return {.step = batch.step,
          .micro_batch = batch.number,
          .positions = batch.positions.defined() ? batch.positions : positions_,
          .first_seen = batch.first_seen};
}

at::Tensor Transformer::embed(const MicroBatch& batch) {
  const ForwardContext context = context_of(batch);
  at::Tensor x = word_embedding_->forward(batch.tokens);
  if (position_embedding_) {
    at::Tensor positions = context.positions;  // of this context rank, whose rows tensor ranks may have divided
    if (const std::int64_t rows = x.size(0); rows < positions.size(0))
      positions = positions.narrow(0, rank_in(parallel().tensor) * rows, rows);
    x = x + static_cast<PositionEmbedding&>(*position_embedding_).forward(positions);
  }
  const double p = config().hidden_dropout;
  if (p == 0 || !is_training()) return x;
  return sequence_dropout(x, p, transformer::dropout_seed(config(), context, 0), context_.rows);
}

at::Tensor Transformer::hidden(int chunk, const MicroBatch& batch, const at::Tensor& input) {
  const bool is_first = stages()[std::size_t(chunk)].is_first;
  const at::Tensor x = is_first ? run_block_by(*embedding_, [&] { return embed(batch); }) : input;
  std::vector<TensorFunction> layers;
  for (const auto& block : blocks_[std::size_t(chunk)])
    layers.push_back([block, context = context_of(batch)](const at::Tensor& x) {
      return run_block_by(*block, [&] { return block->forward(x, context); });
    });
  return run_layers(layers, x, options_.recompute);
}

at::Tensor Transformer::logits(int chunk, const MicroBatch& batch, const at::Tensor& input) {
  const at::Tensor x = hidden(chunk, batch, input);
  const at::Tensor normed = run_block_by(*final_norm_, [&] { return final_norm_->forward(x); });
  torch::nn::Module& output = output_layer_ ? static_cast<torch::nn::Module&>(*output_layer_) : *embedding_;
  return run_block_by(output, [&] {
    const at::Tensor& weight = output_layer_ ? output_layer_->weight : word_embedding_->weight;
    return column_parallel_linear(parallel().tensor, transformer::for_product(config(), normed), weight, {},
                                  parallel().sequence_parallel);
  });
}

at::Tensor Transformer::forward(int chunk, const MicroBatch& batch, const at::Tensor& input) {
  if (!stages()[std::size_t(chunk)].is_last) return hidden(chunk, batch, input);
  const at::Tensor losses = vocab_parallel_cross_entropy(parallel().tensor, logits(chunk, batch, input), batch.targets,
                                                         {.words = config().vocabulary, .overwrite_logits = true});
  return batch.weights.defined() ? (losses * batch.weights).sum() : losses.mean();
}

std::shared_ptr<torch::nn::Module> Transformer::clone(const c10::optional<at::Device>& device) const {
  auto copy = std::make_shared<Transformer>(config(), parallel(), options_);
  const std::optional<at::Device> wanted = device ? std::optional(*device) : std::nullopt;
  copy_tensors(named_parameters(), copy->named_parameters(), wanted);
  copy_tensors(named_buffers(), copy->named_buffers(), wanted);
  copy->train(is_training());
  return copy;
}

}  // namespace tutti
