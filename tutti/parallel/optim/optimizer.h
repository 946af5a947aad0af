#pragma once
// Optimizers in one pass over weight, gradient and what the rule keeps, where torch::optim makes several. The same
// formulas and defaults (update_rule.h).
//
//   tutti::Adam optimizer(*model, {.lr = 1e-3});
//   loss.backward();
//   optimizer.clip_grad_norm(1.0);   // if wanted: scales the gradients within step()
//   optimizer.step();
//   optimizer.zero_grad();
//
// (Split over the ranks of a DataParallel: sharded_optimizer.h.)
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "tutti/parallel/gradients/clip.h"
#include "tutti/parallel/optim/parameter_groups.h"
#include "tutti/parallel/optim/state_part.h"
#include "tutti/parallel/optim/update_rule.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {

class Group;
struct RuleState;
struct ShardPlace;

// Takes f32 and f64 parameters, on the CPU or on a GPU; one that is listed twice (a tied weight) is one. On a GPU
// clip_grad_norm() makes the host wait, once. Not thread-safe.
class Optimizer {
 public:
  // The parameters of the module that require a gradient, under their names. `groups`: those to which another rule
  // applies.
  Optimizer(const torch::nn::Module& module, UpdateRule rule, std::vector<ParameterGroup> groups = {});
  Optimizer(std::vector<NamedTensor> parameters, UpdateRule rule, std::vector<ParameterGroup> groups = {});
  // Their names are "0", "1", ..., and those of shards are their parameters'.
  Optimizer(std::vector<at::Tensor> parameters, UpdateRule rule, std::vector<ParameterGroup> groups = {});
  ~Optimizer();
  Optimizer(Optimizer&&) noexcept;
  Optimizer& operator=(Optimizer&&) noexcept;

  // Parameters without a gradient are left alone.
  void step();
  // Lets gradients go (sets them to none): the next backward() then makes fresh ones, which costs less than zeros and
  // an addition.
  void zero_grad();
  // Of a parameter group: 0 are those that no group lists.
  double lr(std::size_t group = 0) const { return learning_rate(rules_[group]); }
  void set_lr(double lr) { rules_.set_lr(lr); }  // of all groups
  void set_lr(double lr, std::size_t group) { rules_.set_lr(lr, group); }
  void set_weight_decay(double decay, std::size_t group = 0) { rules_.set_weight_decay(decay, group); }

  // As tutti::clip_grad_norm() and clip_grad_value() (clip.h), but the gradients are clipped within the next step(),
  // and only there: `.grad` stays. By norm before by value. Of shards (FullySharded) the norm is over all ranks, and
  // every rank calls.
  GradientNorm clip_grad_norm(double max_norm);
  void clip_grad_value(double limit);
  // In the next step() gradients count as `factor` times what they are; in place of clip_grad_norm().
  void scale_gradients(double factor) { scale_ = factor; }

  // Bytes of state that are kept.
  std::size_t state_bytes() const;
  // All of the state, in the optimizer's own memory: of every parameter, or of the shard that it has of one, what the
  // rule keeps, and "step". What a parameter has not had yet is made, as it is before its first step. Parameters have
  // to be contiguous.
  std::vector<StatePart> own_state();
  // Takes over what another optimizer of this rule gave, whatever parts it is in.
  void load_state(std::span<const StatePart> state) { copy_state(state, own_state()); }

 private:
  const Group* ranks_of_shards() const;  // null: the parameters are no shards

  std::vector<NamedTensor> parameters_;
  std::vector<std::shared_ptr<const ShardPlace>> places_;  // by parameter; null: it is whole
  GroupedRules rules_;
  std::vector<RuleState> states_;
  double scale_, limit_;  // of the next step()
};

// An Optimizer whose rule is known by name.
template <class Options>
class RuleOptimizer : public Optimizer {
 public:
  explicit RuleOptimizer(const torch::nn::Module& module, Options options = {}, std::vector<ParameterGroup> groups = {})
      : Optimizer(module, options, std::move(groups)) {}
  explicit RuleOptimizer(std::vector<at::Tensor> parameters, Options options = {},
                         std::vector<ParameterGroup> groups = {})
      : Optimizer(std::move(parameters), options, std::move(groups)) {}
};
using Sgd = RuleOptimizer<SgdOptions>;
using Adam = RuleOptimizer<AdamOptions>;
using AdamW = RuleOptimizer<AdamWOptions>;
using Adagrad = RuleOptimizer<AdagradOptions>;
using Lion = RuleOptimizer<LionOptions>;
using Muon = RuleOptimizer<MuonOptions>;  // matrices; the other parameters must be in groups (matrix_rule.h)

}  // namespace tutti
