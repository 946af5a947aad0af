#include "tutti/models/gpt/model.h"

#include <ATen/Functions.h>

#include <cstdlib>
#include <string>

#include "tutti/models/gpt/block.h"
#include "tutti/parallel/tensor/cross_entropy.h"
#include "tutti/parallel/tensor/division.h"
#include "tutti/parallel/tensor/linear.h"

namespace tutti::gpt {
namespace {

struct PathScope : torch::nn::Module {};

// A row for each position. With sequence parallelism a rank adds its own rows only, and its gradient is a part.
class PositionEmbedding : public torch::nn::Module, public TensorParallelModule {
 public:
  explicit PositionEmbedding(const Options& options)
      : partial_(options.parallel.sequence_parallel && options.parallel.grid.tensor > 1),
        layout_(ParameterLayout::whole({std::uint64_t(options.shape.positions), std::uint64_t(options.shape.hidden)},
                                       partial_)) {
    const auto initial = initial_weights(options, "embedding.position_embeddings.weight", options.initial_deviation);
    weight_ = register_parameter("weight", draw_weights(layout_, initial, dtype_of(options)));
  }
  // i64 [rows, samples] to [rows, samples, hidden]
  at::Tensor forward(const at::Tensor& positions) { return at::embedding(weight_, positions); }
  ParameterLayout layout_of(std::string_view) const override { return layout_; }

 private:
  const bool partial_;
  const ParameterLayout layout_;
  at::Tensor weight_;
};

std::shared_ptr<VocabParallelEmbeddingImpl> make_word_table(const GridGroups& groups, const Options& options,
                                                            const char* name) {
  return std::make_shared<VocabParallelEmbeddingImpl>(
      groups.tensor, VocabParallelEmbeddingOptions{.words = options.shape.vocabulary,
                                                   .columns = options.shape.hidden,
                                                   .divisible = options.vocabulary_divisible_by,
                                                   .sequence_parallel = options.parallel.sequence_parallel,
                                                   .initial = initial_weights(options, name, options.initial_deviation),
                                                   .dtype = dtype_of(options)});
}

SequencePart attention_part(const GridGroups& groups, const Options& options) {
  return context_part(options.shape.sequence_length, rank_in(groups.context), ranks_of(groups.context));
}
SequencePart row_part(const GridGroups& groups, const Options& options) {
  const auto part = attention_part(groups, options);
  return options.parallel.sequence_parallel ? tensor_part(part, rank_in(groups.tensor), ranks_of(groups.tensor)) : part;
}

}  // namespace

std::vector<Model::Stage> stages_of_rank(const Options& options, int pipeline_rank) {
  const auto ranges = stages_of(options);
  const Schedule places = pipeline_schedule(options, 1, true);
  std::vector<Model::Stage> stages;
  for (int chunk = 0; chunk < options.parallel.chunks; ++chunk) {
    const int stage = places.stage_of(pipeline_rank, chunk);
    stages.push_back({ranges[std::size_t(stage)], stage == 0, stage + 1 == int(ranges.size())});
  }
  return stages;
}

Model::Model(const GridGroups& groups, const Options& options, std::vector<Stage> stages)
    : groups_(groups),
      options_(options),
      stages_(std::move(stages)),
      part_(attention_part(groups, options)),
      rows_(row_part(groups, options)),
      positions_(positions_of(part_).unsqueeze(1)),
      around_(new Surroundings{groups, options, part_, rows_, {}, {}}) {
  fill_rotations(*around_, dtype());
  const auto& shape = options.shape;
  bool has_last = false;
  for (const Stage& stage : stages_) {
    has_first_ = has_first_ || stage.is_first;
    has_last = has_last || stage.is_last;
  }
  if (has_first_ || (has_last && shape.tied)) {
    const auto embedding = register_module("embedding", std::make_shared<PathScope>());
    word_embedding_ = embedding->register_module("word_embeddings",
                                                 make_word_table(groups, options, "embedding.word_embeddings.weight"));
    if (has_first_ && shape.position == PositionKind::kLearned)
      position_embedding_ =
          embedding->register_module("position_embeddings", std::make_shared<PositionEmbedding>(options));
  }
  const auto decoder = register_module("decoder", std::make_shared<PathScope>());
  const auto layers = decoder->register_module("layers", std::make_shared<PathScope>());
  for (const Stage& stage : stages_) {
    auto& blocks = blocks_.emplace_back();
    for (int number = stage.layers.begin; number < stage.layers.end; ++number)
      blocks.push_back(layers->register_module(std::to_string(number), std::make_shared<Block>(*around_, number)));
  }
  if (!has_last) return;
  final_norm_ = decoder->register_module("final_layernorm", std::make_shared<Norm>(options));
  if (!shape.tied)
    output_layer_ = register_module("output_layer", make_word_table(groups, options, "output_layer.weight"));
}

Model::~Model() = default;

at::ScalarType Model::dtype() const { return dtype_of(options_); }

std::vector<std::int64_t> Model::activation_sizes() const {
  return {rows_of(rows_), options_.batches.micro_batch, options_.shape.hidden};
}

at::Tensor Model::tied_weight() const {
  const bool is_tied = options_.shape.tied && groups_.embedding && groups_.embedding.size() > 1;
  return is_tied && word_embedding_ ? word_embedding_->weight : at::Tensor();
}

std::optional<int> Model::chunk_of(std::string_view parameter) const {
  constexpr std::string_view kLayers = "decoder.layers.", kWords = "embedding.word_embeddings.";
  std::vector<int> found;
  for (int chunk = 0; chunk < int(stages_.size()); ++chunk) {
    const Stage& stage = stages_[std::size_t(chunk)];
    bool uses = false;
    if (parameter.starts_with(kLayers)) {
      const int layer = std::atoi(parameter.substr(kLayers.size()).data());
      uses = layer >= stage.layers.begin && layer < stage.layers.end;
    } else if (parameter.starts_with("embedding.")) {
      uses = stage.is_first || (stage.is_last && options_.shape.tied && parameter.starts_with(kWords));
    } else {
      uses = stage.is_last;
    }
    if (uses) found.push_back(chunk);
  }
  TUTTI_REQUIRE(!found.empty(), std::string(parameter), " is used by no stage of this rank");
  return found.size() == 1 ? std::optional(found.front()) : std::nullopt;
}

Passage Model::passage_of(const MicroBatch& batch) const {
  return {.step = batch.step,
          .micro_batch = batch.number,
          .positions = batch.positions.defined() ? batch.positions : positions_,
          .first_seen = batch.first_seen};
}

at::Tensor Model::embed(const MicroBatch& batch) {
  at::Tensor x = word_embedding_->forward(batch.tokens);
  const Passage passage = passage_of(batch);
  if (position_embedding_) {
    at::Tensor positions = passage.positions;  // of this context rank, whose rows tensor ranks may have divided
    if (const std::int64_t rows = x.size(0); rows < positions.size(0))
      positions = positions.narrow(0, rank_in(groups_.tensor) * rows, rows);
    x = x + static_cast<PositionEmbedding&>(*position_embedding_).forward(positions);
  }
  const double p = options_.hidden_dropout;
  if (p == 0 || !is_training()) return x;
  return sequence_dropout(x, p, dropout_seed(options_, passage, 0), rows_);
}

at::Tensor Model::hidden(int chunk, const MicroBatch& batch, const at::Tensor& input) {
  const Stage& stage = stages_[std::size_t(chunk)];
  std::vector<TensorFunction> layers;
  for (const auto& block : blocks_[std::size_t(chunk)])
    layers.push_back([block, passage = passage_of(batch)](const at::Tensor& x) { return block->forward(x, passage); });
  return run_layers(layers, stage.is_first ? embed(batch) : input, options_.parallel.recompute);
}

at::Tensor Model::logits(int chunk, const MicroBatch& batch, const at::Tensor& input) {
  const at::Tensor normed = static_cast<Norm&>(*final_norm_).forward(hidden(chunk, batch, input));
  const at::Tensor& weight = output_layer_ ? output_layer_->weight : word_embedding_->weight;
  return column_parallel_linear(groups_.tensor, for_product(options_, normed), weight, {},
                                options_.parallel.sequence_parallel);
}

at::Tensor Model::forward(int chunk, const MicroBatch& batch, const at::Tensor& input) {
  if (!stages_[std::size_t(chunk)].is_last) return hidden(chunk, batch, input);
  const at::Tensor losses =
      vocab_parallel_cross_entropy(groups_.tensor, logits(chunk, batch, input), batch.targets,
                                   {.words = options_.shape.vocabulary, .overwrite_logits = true});
  return batch.weights.defined() ? (losses * batch.weights).sum() : losses.mean();
}

}  // namespace tutti::gpt
