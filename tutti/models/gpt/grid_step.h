#pragma once
// The end of a step on a grid: from the gradients of every rank to the new weights, the same as one process would make.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tutti/models/gpt/options.h"
#include "tutti/models/transformer/transformer.h"
#include "tutti/parallel/data_parallel/reducer/reducer.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/gradients/norm.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/parallel/tensor/parameter_layout.h"
#include "tutti/trace/timers.h"

namespace tutti {
class LeveledTimers;
}

namespace tutti::gpt {

struct StepScale {
  double loss_scale = 1;        // gradients were multiplied by it
  bool skips_infinity = false;  // a step with a gradient that is not finite is skipped; else it is an Exception
};

struct StepOutcome {
  double gradient_norm = 0;         // before clipping, over all ranks, without the loss scale
  std::int64_t zero_gradients = 0;  // with ReportOptions::zero_gradients
  bool skipped = false;             // on every rank
};

// One thread. Every rank calls alike.
class GridStep {
 public:
  // All have to stay. With more than one copy of the tied embedding makes these equal.
  GridStep(const Parallel& groups, const Options& options, std::shared_ptr<Transformer> model);
  ~GridStep();

  // The model's, of a chunk; with --fsdp the weights of each layer are whole while it runs.
  at::Tensor forward(int chunk, const MicroBatch& batch, const at::Tensor& input);
  // Another function of the model that runs its layers.
  void run_forward(const std::function<void()>& act);
  void zero_grad();
  // Around the last backward of a chunk in the step (PipelineOptions).
  void before_last_backward(int chunk);
  // Sums and averages gradients over the grid, clips them and steps the weights. Throws Exception where a gradient is
  // not finite, with the parameter where this rank has it.
  StepOutcome finish(double learning_rate, double weight_decay, LeveledTimers& timers, const StepScale& scale = {});

  // sqrt of the sum of the squares of all weights, each once. Collective.
  double parameter_norm() const;
  const std::vector<PlacedParameter>& parameters() const { return parameters_; }
  // What this rank's optimizer keeps.
  std::vector<StatePart> own_state();
  std::size_t optimizer_bytes() const {
    return whole_ ? whole_->state_bytes() : sharded_ ? sharded_->state_bytes() : 0;
  }
  // With --fsdp, else null: parameters() have no memory outside of forward(), but own_state() of this.
  ShardedModule* fully_sharded() { return fully_sharded_.get(); }
  const UpdateRule& rule() const { return rule_; }

 private:
  void make_fully_sharded(const ParameterGroup& not_decayed);
  void make_sharded_optimizer(const ParameterGroup& not_decayed);
  void make_overlapped_averages();
  void sum_parts_of_gradients(LeveledTimers& timers);
  void average();
  StepOutcome clip(const StepScale& scale);
  StepOutcome clip_sharded(const StepScale& scale);
  double count_zeros() const;
  std::int64_t padding_elements() const;
  [[noreturn]] void throw_non_finite(const std::string& sentence, const StepScale& scale) const;
  // The norm of all gradients, each once, the same on every rank.
  GradientNorm gradient_norm() const;
  double sum_over_model(double mine) const;
  double sum_over_shards(double mine) const;

  const Parallel& groups_;
  const Options& options_;
  const std::shared_ptr<Transformer> model_;
  const std::vector<PlacedParameter> parameters_;
  std::vector<NamedTensor> stepped_;  // by parameter: the tensor, or with --fsdp this rank's shard of it
  std::vector<bool> elsewhere_;       // by parameter: another rank of the model group counts it in sums
  std::vector<at::Tensor> partial_;
  const UpdateRule rule_;
  std::vector<std::unique_ptr<Reducer>> overlapped_;  // by chunk, of what it alone uses; null: nothing
  std::vector<at::Tensor> averaged_at_end_;           // all other parameters
  std::unique_ptr<FullySharded<Transformer>> fully_sharded_;
  std::unique_ptr<Optimizer> whole_;  // of stepped_; or
  std::unique_ptr<Reducer> for_sharded_;
  std::unique_ptr<ShardedOptimizer> sharded_;
};

}  // namespace tutti::gpt
