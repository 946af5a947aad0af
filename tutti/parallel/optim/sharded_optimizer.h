#pragma once
// An optimizer whose work and state are split over the ranks of a DataParallel (ZeRO: Rajbhandari et al., 2020). Each
// rank averages the gradients of its part of every parameter, steps that part, and sends the new weights to all ranks.
// It has optimizer state for that part only. The rules are those of optimizer.h.
//
//   tutti::DataParallel ddp(model, world);
//   tutti::ShardedOptimizer optimizer(ddp, tutti::AdamOptions{.lr = 1e-3}, {.stage = 2});
//   loss(ddp.forward(x), y).backward();
//   optimizer.clip_grad_norm(1.0);                  // if wanted
//   optimizer.step();                               // ddp.finish() is part of it
//   optimizer.zero_grad();
//
// Stage 1 splits the state: with Adam on p ranks a rank keeps 8 + 8/p bytes of f32 a parameter. Stage 2 averages
// gradients while backward() runs and keeps this rank's part of them: 4 + 12/p. (Stage 3, which splits the weights as
// well: fully_sharded/fully_sharded.h.)
//
// The weights have the same bits as with ddp.finish() and an Optimizer (over links of more than two ranks unless
// `same_bits` is turned off). Where all ranks share a host stage 1 moves half the bytes.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/gradients/clip.h"
#include "tutti/parallel/optim/parameter_groups.h"
#include "tutti/parallel/optim/state_part.h"
#include "tutti/parallel/optim/update_rule.h"

namespace tutti {

class ShardedModule;  // fully_sharded/fully_sharded.h

struct ShardedOptimizerOptions {
  int stage = 1;                         // 1 or 2
  std::vector<ParameterGroup> groups{};  // to which another rule applies
  // Over links, with more than two ranks: average by the all_reduce that DataParallel would make. false: by
  // reduce_scatter, which moves half as much; averages may then differ from those of an unsharded run by a rounding.
  bool same_bits = true;
  // Where other ranks have other parts of the model (tensor, pipeline parallelism): all ranks that have the whole of it
  // together, this one among them. Norms are then over the whole model, and every rank of `model` calls alike.
  Group model{};
  std::vector<std::string> counted_elsewhere{};  // of this rank's parameters: another rank of `model` has them as well
};

// Takes f32 and f64. Not thread-safe. Every rank makes one, with the same rules, or all get an Exception that shows the
// first difference; and calls its functions alike.
//
// While it exists, the memory of parameters belongs to the group (the tensors stay the same), and peers write to it
// inside step(). Do not read `.grad` after step(): it may hold this rank's local gradient or be undefined.
class ShardedOptimizer {
 public:
  template <class M>
  ShardedOptimizer(DataParallel<M>& ddp, UpdateRule rule, ShardedOptimizerOptions options = {})
      : ShardedOptimizer(ddp.reducer(), std::move(rule), options) {}
  ShardedOptimizer(Reducer& reducer, UpdateRule rule, ShardedOptimizerOptions options = {});
  // Stage 3.
  ShardedOptimizer(ShardedModule& model, UpdateRule rule, std::vector<ParameterGroup> groups = {});
  ~ShardedOptimizer();
  ShardedOptimizer(const ShardedOptimizer&) = delete;

  // Finishes the step of DataParallel and makes the optimizer's, unless Reducer::skips_step(). Throws Exception with
  // the root cause; then weights are undefined and the group is lost.
  void step();
  // Lets gradients go, as DataParallel::zero_grad() does.
  void zero_grad();
  // Of a parameter group: 0 are those that no group lists.
  double lr(std::size_t group = 0) const;
  void set_lr(double lr);  // of all groups
  void set_lr(double lr, std::size_t group);
  void set_weight_decay(double decay, std::size_t group = 0);

  // Between backward() and step(), once: finishes the step of DataParallel and averages. The norm of all averages
  // together, the same on every rank; step() then scales them as tutti::clip_grad_norm() does. Where the norm is not
  // finite nothing is scaled, and every rank gets the same sentence: call zero_grad() instead of step() to skip the
  // step.
  GradientNorm clip_grad_norm(double max_norm);
  // Stages 1 and 2, after clip_grad_norm() and before step(): how many of the averages that its norm is of are exactly
  // 0. Every rank calls.
  std::int64_t zero_averages();
  // The averages are clamped to +-limit in the next step(), after they were scaled.
  void clip_grad_value(double limit);

  // Bytes of state that this rank keeps.
  std::size_t state_bytes() const;
  // This rank's part of the state, in the optimizer's own memory, under the parameters' names; what has not been needed
  // yet is made. The parts of all ranks together are the whole. Parameters have to be contiguous.
  std::vector<StatePart> own_state();
  // The whole state of every parameter, on every rank, as copies. Every rank calls.
  std::vector<StatePart> full_state();
  // Takes this rank's part out of a whole state, or of any parts that hold it: of any optimizer of the same rule.
  void load_state(std::span<const StatePart> state) { copy_state(state, own_state()); }

  struct State;  // sharded_state.h

 private:
  explicit ShardedOptimizer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tutti
