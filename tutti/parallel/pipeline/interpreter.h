#pragma once
// One step of one rank: its list of actions, from the first to the last. See pipeline.h, which owns the parts.
#include <ATen/core/Tensor.h>

#include <vector>

#include "tutti/parallel/pipeline/graph_end.h"
#include "tutti/parallel/pipeline/pipeline.h"
#include "tutti/tensor/weight_gradients.h"

namespace tutti {

class Interpreter {
 public:
  // All outlive it.
  Interpreter(const Schedule& schedule, int rank, const std::vector<Chunk>& chunks, const PipelineOptions& options,
              const StepOptions& step, StageMessages& messages);

  StepResult run();

 private:
  // What there is of a microbatch in a chunk, from its forward to the end of its backward.
  struct Kept {
    at::Tensor input;         // of the forward: a leaf, whose .grad goes to the stage before
    GraphEnd output;          // where backward begins
    at::Tensor gradient;      // of the output: from the stage after, or of the loss
    WeightGradients weights;  // put off, between the two halves of backward
    std::int64_t bytes = 0;
  };
  // Which actions of a chunk are about its last microbatch.
  struct LastBackward {
    std::size_t begins = 0, ends = 0;
  };

  void find_peers();
  void find_last_backwards();
  void expect(std::size_t action);
  void act(std::size_t number);
  void forward(const Action& action);
  void backward(const Action& action);
  void backward_weight(const Action& action);

  at::Tensor run_chunk(const Action& action, const at::Tensor& input);
  void take_loss(const Action& action, const at::Tensor& loss);
  void pass_gradient_back(const Action& action);
  void note_kept(Kept& one, std::int64_t bytes);
  void let_go(const Kept& one);
  template <class Run>
  void timed(const Action& action, Run&& run);

  Kept& kept(int chunk, int microbatch) {
    return kept_[std::size_t(chunk) * std::size_t(schedule_.shape.microbatches) + std::size_t(microbatch)];
  }
  int stage_of(const Action& action) const { return schedule_.stage_of(rank_, action.chunk); }
  bool is_last(int stage) const { return stage == schedule_.shape.stages() - 1; }
  std::string place(const Action& action) const;

  const Schedule& schedule_;
  const int rank_;
  const std::vector<Action>& actions_;  // of this rank
  const std::vector<Chunk>& chunks_;
  const PipelineOptions& options_;
  const StepOptions& step_;
  StageMessages& messages_;

  // What each peer sends to this rank, in its order, and how much of it was expected so far.
  struct Peer {
    std::vector<StageMessage> sends;
    std::size_t expected = 0;
  };
  std::vector<Peer> peers_;
  std::vector<LastBackward> last_backwards_;  // by chunk
  std::vector<Kept> kept_;                    // by chunk and microbatch
  int kept_now_ = 0;
  std::int64_t bytes_now_ = 0;
  std::vector<at::Tensor> losses_;  // of the microbatches, on the rank of the last stage: read at the end
  StepResult result_;
};

}  // namespace tutti
