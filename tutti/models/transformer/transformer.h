#pragma once
// A decoder-only transformer (GPT, Llama, ...) that is a value of its config: alone, or divided over tensor, context
// and pipeline ranks. Pre-norm layers (block_spec.h), a last norm, logits by the word embedding or a layer of its own,
// cross entropy of the next token.
//
//   auto model = std::make_shared<tutti::Transformer>(tutti::TransformerConfig{
//       .layers = 2, .hidden = 64, .heads = 4, .vocabulary = 256, .sequence_length = 32});
//   tutti::DataParallel ddp(model, world);
//   ddp.forward(tutti::MicroBatch{.tokens = tokens, .targets = targets}).backward();  // i64 [32, batch]
//
// Activations are [rows, batch, hidden]; rows are positions of the sequence. The model keeps copies of what it is made
// from. The embedding, each layer, the last norm and the output layer run by run_block_by(), so a FullySharded can name
// them: {.blocks = {"decoder.layers.*"}}. Parameters have the names of planning/transformer_config.h on every grid, and
// the same first values, which depend on the seed and the name. Dropout depends on the seed, the step, the micro batch
// and the layer, not on the grid. So a run on any grid has the losses of one process, to rounding.
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/models/transformer/block_spec.h"
#include "tutti/models/transformer/parallel.h"
#include "tutti/parallel/recompute.h"
#include "tutti/parallel/tensor/sequence.h"
#include "tutti/parallel/tensor/vocab_embedding.h"
#include "tutti/planning/stage_layers.h"
#include "tutti/planning/transformer_config.h"

namespace tutti {

// The input of a forward pass. Tokens and targets have the positions of Transformer::sequence(): i64 [rows, batch].
struct MicroBatch {
  at::Tensor tokens;        // first stage
  at::Tensor targets;       // last stage
  at::Tensor weights;       // last stage: of each token's loss; undefined: the mean over them
  at::Tensor positions;     // i64 [rows, batch], for documents that begin inside a sample; undefined: of the sequence
  at::Tensor first_seen;    // i64 [rows, batch]: the first position that a token sees; undefined: all before it
  std::int64_t step = 0;    // for dropout,
  std::int64_t number = 0;  // with the number of the micro batch in the step, over all replicas
};

struct TransformerOptions {
  std::vector<StageLayers> stages = {};  // of this rank, by chunk; empty: one stage with all layers
  BlockSpec block = {};
  RecomputeOptions recompute = {};
};

// One thread at a time. Copying shares the weights, as of every module; clone() copies them.
class Transformer : public torch::nn::Module {
 public:
  // Every rank of the groups makes one. Sizes that are 0 get their defaults (with_defaults()). Throws Exception where
  // the sizes do not fit together or into the groups.
  explicit Transformer(TransformerConfig config, Parallel parallel = {}, TransformerOptions options = {});

  // The loss of a model of one stage: a tensor of one element.
  at::Tensor forward(const MicroBatch& batch) { return forward(0, batch, {}); }
  // Of a chunk. `input` is the result of the stage before, undefined on the first stage. On the last stage the result
  // is the loss, whose average over context ranks is that of all tokens; on others [rows, batch, hidden] for the next
  // one.
  at::Tensor forward(int chunk, const MicroBatch& batch, const at::Tensor& input);
  // The last stage's logits, [rows of the sequence, batch, this rank's part of the padded vocabulary].
  at::Tensor logits(int chunk, const MicroBatch& batch, const at::Tensor& input);

  const TransformerConfig& config() const { return context_.config; }
  const Parallel& parallel() const { return context_.parallel; }
  const std::vector<StageLayers>& stages() const { return options_.stages; }
  const SequencePart& sequence() const { return context_.sequence; }  // positions of tokens and targets on this rank
  at::ScalarType dtype() const;                                       // of weights and of what stages send
  at::Device device() const;                                          // of weights: where all tensors have to be
  // [rows, batch, hidden] of what stages send for a micro batch of so many samples.
  std::vector<std::int64_t> activation_sizes(std::int64_t micro_batch) const;

  // The word embedding where this rank has it for the first or the last stage and both are to be the same; else
  // undefined.
  at::Tensor tied_weight() const;
  // Whether tied_weight() is a copy that counts elsewhere.
  bool tied_weight_is_copy() const { return word_embedding_ && !has_first_; }
  // The one chunk of this rank that uses a parameter; none where two do (a tied embedding at both ends).
  std::optional<int> chunk_of(std::string_view parameter) const;

  // A model with copies of the weights, on `device` if there is one.
  std::shared_ptr<torch::nn::Module> clone(const c10::optional<at::Device>& device = c10::nullopt) const override;

 private:
  ForwardContext context_of(const MicroBatch& batch);
  at::Tensor embed(const MicroBatch& batch);
  at::Tensor hidden(int chunk, const MicroBatch& batch, const at::Tensor& input);

  LayerContext context_;
  TransformerOptions options_;
  at::Tensor positions_;  // i64 [rows of the sequence, 1]
  bool has_first_ = false;
  std::shared_ptr<torch::nn::Module> embedding_;
  std::shared_ptr<VocabParallelEmbeddingImpl> word_embedding_, output_layer_;
  std::shared_ptr<torch::nn::Module> position_embedding_;
  std::shared_ptr<Norm> final_norm_;
  std::vector<std::vector<std::shared_ptr<TransformerModule>>> blocks_;  // by chunk
};

}  // namespace tutti
