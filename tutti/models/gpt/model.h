#pragma once
// A GPT (Radford et al. 2019), or the part of one that a rank has: of its tensor group's slice of every layer, the
// layers of its stages. Pre-norm blocks, x + attention(norm(x)), then x + mlp(norm(x)); a last norm; logits by the word
// embedding or by a layer of its own; cross entropy of the next token.
//
// Activations are [rows, batch, hidden]; rows are the positions that this rank has (parallel/tensor/sequence.h).
// Parameters have the names of planning/gpt_shape.h on every grid, and the same first values, which hang on
// the seed, their name and their place. Dropout hangs on the seed, step, sample of the step and layer, not on the grid
// (replicas take the same samples of a step in whichever number they are, as long as the micro batch is the same).
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "tutti/models/gpt/grid_groups.h"
#include "tutti/models/gpt/options.h"
#include "tutti/parallel/tensor/sequence.h"
#include "tutti/parallel/tensor/vocab_embedding.h"

namespace tutti::gpt {

// What a forward pass is about. Positions of `tokens` and `targets` are those of SequencePart: [rows, batch], i64.
struct MicroBatch {
  at::Tensor tokens;        // first stage
  at::Tensor targets;       // last stage
  at::Tensor weights;       // last stage: of each token's loss; undefined: the mean over them
  at::Tensor positions;     // i64 [rows, batch], where they begin anew with each document; undefined: of the sequence
  at::Tensor first_seen;    // i64 [rows, batch]: the first position that a token sees; undefined: all before it
  std::int64_t step = 0;    // for dropout,
  std::int64_t number = 0;  // with the number of the micro batch in the step, over all replicas
};

class Block;
struct Passage;
struct Surroundings;

// One stage, or several, of a rank. One thread at a time.
class Model : public torch::nn::Module {
 public:
  // `stages`: the layers of each stage of this rank; by chunk.
  struct Stage {
    LayerRange layers;
    bool is_first = false, is_last = false;
  };
  Model(const GridGroups& groups, const Options& options, std::vector<Stage> stages);
  ~Model() override;

  // Of the chunk: `input` is what the stage before has made, undefined on the first stage. On the last stage the loss,
  // a tensor of one element, the mean over the tokens of all context ranks when these are averaged; else [rows, batch,
  // hidden] for the next one.
  at::Tensor forward(int chunk, const MicroBatch& batch, const at::Tensor& input);
  // The last stage's logits, [rows of the sequence, batch, this rank's part of the filled-up vocabulary].
  at::Tensor logits(int chunk, const MicroBatch& batch, const at::Tensor& input);

  // [rows, batch, hidden] of what travels between stages.
  std::vector<std::int64_t> activation_sizes() const;
  const SequencePart& part() const { return part_; }  // of tokens and targets
  // The word embedding where this rank has it for the first or the last stage and both are to be the same; else
  // undefined.
  at::Tensor tied_weight() const;
  // Whether tied_weight() is a copy that counts elsewhere.
  bool tied_weight_is_copy() const { return word_embedding_ && !has_first_; }
  at::ScalarType dtype() const;
  // The one chunk of this rank that uses a parameter; none where two do (a tied embedding at both ends).
  std::optional<int> chunk_of(std::string_view parameter) const;

 private:
  Passage passage_of(const MicroBatch& batch) const;
  at::Tensor embed(const MicroBatch& batch);
  at::Tensor hidden(int chunk, const MicroBatch& batch, const at::Tensor& input);

  const GridGroups& groups_;
  const Options& options_;
  const std::vector<Stage> stages_;
  const SequencePart part_,
      rows_;                    // of attention; of all else (of part_ this tensor rank's, with sequence parallelism)
  const at::Tensor positions_;  // [rows of part_, 1]
  const std::unique_ptr<Surroundings> around_;
  bool has_first_ = false;
  std::shared_ptr<VocabParallelEmbeddingImpl> word_embedding_, output_layer_;
  std::shared_ptr<torch::nn::Module> position_embedding_, final_norm_;
  std::vector<std::vector<std::shared_ptr<Block>>> blocks_;  // by chunk
};

// The stages of a rank, by chunk.
std::vector<Model::Stage> stages_of_rank(const Options& options, int pipeline_rank);

}  // namespace tutti::gpt
