#pragma once
// The end of a step on a grid: from the gradients of every rank to the new weights, the same as one process would make.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/models/gpt/grid_groups.h"
#include "tutti/models/gpt/model.h"
#include "tutti/models/gpt/options.h"
#include "tutti/parallel/ddp/reducer/reducer.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/parallel/tensor/parameter_layout.h"
#include "tutti/trace/timers.h"

namespace tutti::gpt {

class LeveledTimers;

struct StepOutcome {
  double gradient_norm = 0;         // before clipping, over all ranks
  std::int64_t zero_gradients = 0;  // with ReportOptions::zero_gradients
};

// One thread. Every rank calls alike.
class WeightsStep {
 public:
  // All have to stay. With more than one copy of the tied embedding makes these equal.
  WeightsStep(const GridGroups& groups, const Options& options, std::shared_ptr<Model> model);
  ~WeightsStep();

  void zero_grad();
  // Around the last backward of the step (PipelineOptions).
  void before_last_backward();
  // Sums and averages gradients over the grid, clips them and steps the weights, at this rate and this decay. Throws
  // Exception where a gradient is not finite, with the parameter where this rank has it.
  StepOutcome finish(double learning_rate, double weight_decay, LeveledTimers& timers);

  // sqrt of the sum of the squares of all weights, each once. Collective.
  double parameter_norm() const;
  const std::vector<PlacedParameter>& parameters() const { return parameters_; }
  // What this rank's optimizer keeps.
  std::vector<StatePart> own_state();
  const UpdateRule& rule() const { return rule_; }

 private:
  void average(LeveledTimers& timers);
  StepOutcome clip();
  void decay(double learning_rate, double weight_decay);
  // Whether this rank's copy of a parameter counts in sums over the model group.
  bool counts(const PlacedParameter& parameter) const;
  double norm_over_model(double squares) const;

  const GridGroups& groups_;
  const Options& options_;
  const std::shared_ptr<Model> model_;
  const std::vector<PlacedParameter> parameters_;
  const std::vector<at::Tensor> partial_;
  const UpdateRule rule_;
  const bool decays_apart_;  // the decay changes: it is not the rule's
  std::unique_ptr<Reducer> reducer_;
  std::unique_ptr<Optimizer> whole_;  // one of the two
  std::unique_ptr<ShardedOptimizer> sharded_;
};

}  // namespace tutti::gpt
