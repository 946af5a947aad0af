#pragma once
// What DataParallel does, apart from the type of the model.
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/data_parallel/options.h"

namespace at {
class Tensor;
}
namespace torch::nn {
class Module;
}

namespace tutti {

class GradientConsumer;

class Reducer {
 public:
  // Compares options and models, and broadcasts parameters and buffers from rank 0. Throws Exception: options or models
  // that differ (the first difference with both sides), a name that the model does not have, options that exclude one
  // another, nothing to train, a parameter that is sparse, or neither on the CPU nor on a GPU.
  Reducer(std::shared_ptr<torch::nn::Module> module, const Group& group, const DataParallelOptions& options);
  ~Reducer();  // waits for what is in flight; where an exception unwinds the stack past it ends that, and the group

  void before_forward();
  void check_batch(const at::Tensor& batch) const;  // throws if it has no samples and forward() is to train
  void finish();
  void average_delayed();
  std::vector<int> logical_ranks() const;
  void begin_logical_rank(int number);
  void zero_grad();
  void set_sync(bool on);
  // In place of hooks, with set_sync(false) during backward(): what is in .grad now is this step's, also where it was
  // written after backward() (WeightGradients) or changed since. Before finish(), with set_sync(false) behind it again.
  // Parameters without a gradient take part with zeros.
  void take_gradients();
  const DataParallelOptions& options() const;
  bool checks_in_reduction() const { return options().finite_check == FiniteCheck::kInReduction; }
  DataParallelStats stats() const;
  // Of the step that finish() has finished, nothing with FiniteCheck::kOff; and with kInReduction nothing of gradients
  // that a sharded optimizer averages.
  std::optional<NonFiniteGradient> non_finite() const;
  // Whether an optimizer is to leave the weights alone: a gradient was not finite. Alike on all ranks.
  bool skips_step() const { return non_finite().has_value(); }

  // For LossScaler. finish() divides gradients by this, after they were averaged.
  void set_gradient_scale(double scale);
  // Throws unless finite_check is kReport, and where what is given excludes a LossScaler.
  void require_what_a_scaler_needs();
  void set_after_join_step(std::function<void()> act);

  // For an optimizer that averages the gradients itself: while one is attached nothing is reduced here, and nothing
  // written to `.grad`. One that is packed is let go as soon as it is packed.
  const Group& group() const;
  std::vector<at::Tensor> parameters() const;         // that are trained, each once, in the order of registration
  std::vector<std::string> names() const;             // of those
  bool is_large(std::size_t parameter) const;         // its gradient stays where backward() made it, others are packed
  void attach_optimizer(GradientConsumer& consumer);  // throws if one is attached, or options do not go with it
  void detach_optimizer();
  void count_exposed(double seconds);  // communication outside of finish()

  // For join_uneven(): which ranks still have data. Between begin_join() and end_join() every rank calls turn() once a
  // step: ranks with data in before_forward(), ranks without before each join_step().
  struct JoinTurn {
    std::vector<int> gone;  // ranks without data, ascending
    int active = 0;         // how many have some
    int root = 0;           // the highest of those
    bool buffers = false;   // they broadcast theirs in this step
  };
  void begin_join(bool divide_by_active, bool throw_on_early_end);
  std::optional<int> join_leader() const;  // the root of this rank's last turn; between begin_join() and end_join()
  JoinTurn turn(bool has_data);
  void join_step(const JoinTurn& turn);  // takes part in a step of the ranks with data, with zeros
  void end_join();
  void broadcast_model(int root);  // parameters and buffers

  struct State;  // reducer_state.h

 private:
  std::shared_ptr<State> state_;  // shared with the hooks, which hold it weakly
};

}  // namespace tutti
