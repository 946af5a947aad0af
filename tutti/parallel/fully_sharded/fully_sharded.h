#pragma once
// Fully sharded data parallelism (stage 3 of ZeRO; fully_shard() of PyTorch): weights, gradients and optimizer state
// are split over the ranks, 16/p bytes of f32 a parameter with Adam on p ranks. The weights of a block are whole only
// while the block runs, forward and backward.
//
//   auto model = std::make_shared<Gpt>();
//   tutti::FullySharded sharded(model, world, {.blocks = {"layers.*"}});
//   tutti::ShardedOptimizer optimizer(sharded, tutti::AdamWOptions{.lr = 1e-3});
//   loss(sharded.forward(tokens), targets).backward();
//   optimizer.step();
//   optimizer.zero_grad();
//
// LibTorch's C++ modules have no hooks, so the model's forward() calls its blocks by run_block(). Without a
// FullySharded that is an ordinary call, so the model runs on one process as before:
//
//   at::Tensor forward(at::Tensor x) {
//     for (auto& layer : layers) x = tutti::run_block(layer, x, mask);    // in place of layer->forward(x, mask)
//     return head(x);
//   }
//
// The children of a torch::nn::Sequential are its blocks, and need no change. Parameters outside of all blocks, and
// those that two blocks share (tied weights), are the root's: whole from the beginning of forward() until their
// gradients are complete.
//
// With torch::optim, or a tutti::Optimizer, each rank steps its shards:
//
//   torch::optim::AdamW optimizer(sharded.parameters(), 1e-3);  // in a checkpoint: TorchOptim(*model, optimizer)
//   loss(sharded.forward(x), y).backward();
//   sharded.finish();                       // averages are in .grad of the shards
//   sharded.clip_grad_norm(1.0);
//   optimizer.step();
//   sharded.zero_grad();
//
// On one host all ranks share one copy of the weights in shared memory, and no weights are gathered. Between hosts a
// block is gathered while the one before it computes, and its gradients are averaged during backward().
#include <ATen/core/Tensor.h>

#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/thread.h"
#include "tutti/comm/group.h"
#include "tutti/parallel/data_parallel/options.h"
#include "tutti/parallel/gradients/clip.h"
#include "tutti/parallel/optim/state_part.h"
#include "tutti/tensor/named_tensor.h"

namespace torch::nn {
class Module;
class SequentialImpl;
template <class Contained>
class ModuleHolder;
}  // namespace torch::nn

namespace tutti {

// The types in which blocks compute and gradients are averaged. The optimizer steps the parameters' own type, f32.
struct MixedPrecisionPolicy {
  std::optional<DType> param_dtype{};   // kBF16 or kF16; none: the parameters' own type
  std::optional<DType> reduce_dtype{};  // kF32, kBF16 or kF16; none: the type of the gradients
  std::optional<DType> output_dtype{};  // of the tensor that forward() returns; none: as it is
  bool cast_forward_inputs = true;      // floating-point tensors that are arguments, to param_dtype
};

struct FullyShardedOptions {
  // Names of the modules that are gathered each for itself; a `*` stands for one part of a name: "layers.*". None: the
  // whole model is one block, or, of a Sequential, each child is one. No block is inside another.
  std::vector<std::string> blocks = {};
  // The ranks that have the same shards as this one, in other groups (HSDP): shard within a host, replicate across
  // hosts. Gradients are averaged over both. With a mesh: groups.along("shard"), {.replicate =
  // groups.along("replicate")}.
  Group replicate{};
  MixedPrecisionPolicy mixed_precision = {};
  bool reshard_after_forward = true;  // false: blocks stay whole until backward() has passed them
  int prefetch = 1;                   // blocks that are gathered ahead of the one that runs
  // kThrow: finish(), or step() of a ShardedOptimizer, throws an Exception that names the parameter and the rank where
  // a gradient has a NaN or an infinity; weights stay as they were. kReport: see non_finite(). kOff: no check.
  FiniteCheck finite_check = FiniteCheck::kThrow;
  bool share_on_host = true;         // one copy of the weights for all ranks, where they are all on one host
  bool heap_tensors = true;          // as in ComputeOptions (tensor/compute.h)
  bool allow_empty_batches = false;  // likewise
  // The destructor gathers the weights, so that the model is whole on every rank afterwards (collective; each rank
  // needs the memory). false, or where an exception unwinds the stack or the group has failed: the parameters are
  // empty.
  bool unshard_at_end = true;
};

// What does not depend on the type of the model. Not thread-safe, except that the hooks may run on autograd's threads.
// Every rank makes one, uses it and destroys it alike. Takes f32 and f64 parameters, of one type within a block.
//
// A block returns one tensor, and takes part in the loss by that tensor alone. Every rank runs the same blocks in the
// same order, or the step throws; which of them it uses in a loss may differ: a block that a rank does not use counts
// as zeros. Several passes of forward() and backward() may make one step: their averages are added. Frozen weights are
// sharded with the others of their block. Buffers are broadcast from rank 0 at the start, and after that are every
// rank's own.
class ShardedModule {
 public:
  ~ShardedModule();
  ShardedModule(const ShardedModule&) = delete;
  ShardedModule& operator=(const ShardedModule&) = delete;

  // ---- For torch::optim and Optimizer; a ShardedOptimizer does this itself.
  // This rank's shards of the parameters that are trained: leaves of shape [elements of this rank], of the parameters'
  // own type, in the order and under the names of named_parameters(). Small parameters may have no element on a rank.
  std::vector<at::Tensor> parameters();
  std::vector<NamedTensor> named_parameters();
  // After backward(): waits for the averages and adds them to `.grad` of the shards (of a parameter that no rank used:
  // nothing). Collective.
  void finish();
  // After finish(): scales `.grad` of the shards as tutti::clip_grad_norm() does; the norm is over all ranks.
  // Collective.
  GradientNorm clip_grad_norm(double max_norm);
  void zero_grad();

  // With FiniteCheck::kReport: what the last finish() found, the same on every rank. An optimizer leaves the weights
  // alone then, and finish() leaves `.grad` alone.
  std::optional<NonFiniteGradient> non_finite() const;
  // By what the loss was multiplied: averages are divided by it.
  void set_gradient_scale(double scale);
  FiniteCheck finite_check() const;
  const Group& group() const;

  // This rank's shards of all parameters, and all buffers, in their own memory: nothing is gathered. For checkpoints:
  // checkpointer.add("model", sharded). Parameters have to be contiguous.
  std::vector<StatePart> own_state();

  // While it exists all weights are whole, to be read or written: what every rank alike writes to them stays. Every
  // rank makes one; not between forward() and the end of step().
  class Whole {
   public:
    explicit Whole(ShardedModule& of);
    ~Whole();
    Whole(const Whole&) = delete;

   private:
    ShardedModule& of_;
    const Unwinding unwinding_{};
  };
  [[nodiscard]] Whole whole() { return Whole(*this); }
  // Ends sharding: the weights are whole on every rank from here on, in ordinary memory, and forward() is the model's.
  // Collective.
  void unshard();

  bool shared() const;               // one copy for the ranks of the host
  std::size_t weight_bytes() const;  // that this rank keeps, while no block runs

  struct State;  // fully_sharded_state.h

 protected:
  ShardedModule(std::shared_ptr<torch::nn::Module> module, const Group& group, FullyShardedOptions options);

 private:
  friend class ShardedOptimizer;

 protected:
  std::shared_ptr<State> state_;  // shared with the hooks, which hold it weakly
};

namespace fully_sharded {

// A forward pass on this thread, in which run_block() finds the blocks of a model.
class ForwardScope {
 public:
  explicit ForwardScope(std::shared_ptr<ShardedModule::State> state);
  ~ForwardScope();
  ForwardScope(const ForwardScope&) = delete;

  void check_batch(const at::Tensor& x) const;
  at::Tensor input(at::Tensor value) const;
  at::Tensor output(at::Tensor value) const;
  at::Tensor run_sequence(at::Tensor x) const;  // the children of a Sequential
  // Throws an Exception that names a block that was not run by run_block(), if that explains `error`.
  void explain(const std::exception& error) const;

 private:
  std::shared_ptr<ShardedModule::State> state_;
};

// The innermost forward pass of this thread, for recompute(): blocks that run again in backward() find it there.
using ForwardPass = std::weak_ptr<ShardedModule::State>;
ForwardPass current_forward();
class ForwardAgain {
 public:
  explicit ForwardAgain(const ForwardPass& pass);
  ~ForwardAgain();
  ForwardAgain(const ForwardAgain&) = delete;

 private:
  std::shared_ptr<ShardedModule::State> state_;
};

// A block that runs: its weights are whole from here to end().
class BlockRun {
 public:
  explicit BlockRun(const torch::nn::Module& block);
  bool is_sharded() const { return state_ != nullptr; }
  at::Tensor input(at::Tensor value) const;
  void end(const at::Tensor& out);

 private:
  std::shared_ptr<ShardedModule::State> state_;  // null: an ordinary module
  std::size_t block_ = 0;
  bool in_backward_ = false;
};

template <class Place, class T>
decltype(auto) input_in(const Place& place, T&& value) {
  if constexpr (std::is_same_v<std::decay_t<T>, at::Tensor>) {
    return place.input(std::forward<T>(value));
  } else {
    return std::forward<T>(value);
  }
}

}  // namespace fully_sharded

// block.forward(inputs...), with the weights of the block whole if it is one of the FullySharded whose forward() is
// running; else an ordinary call. `block`: a module, a pointer to one, or the holder that TORCH_MODULE makes.
template <class Block, class... Inputs>
at::Tensor run_block(Block&& block, Inputs&&... inputs) {
  auto& module = [&]() -> auto& {
    if constexpr (std::is_base_of_v<torch::nn::Module, std::decay_t<Block>>) {
      return block;
    } else {
      return *block;
    }
  }
  ();
  fully_sharded::BlockRun run(module);
  if (!run.is_sharded()) return module.forward(std::forward<Inputs>(inputs)...);
  at::Tensor out = module.forward(fully_sharded::input_in(run, std::forward<Inputs>(inputs))...);
  run.end(out);
  return out;
}

// The same where the block computes by a function of the model: forward().
at::Tensor run_block_by(const torch::nn::Module& block, const std::function<at::Tensor()>& forward);

// M: a torch::nn::Module. The model's parameters stay the tensors that they are; outside of forward() those that are
// not shared have no memory, and with mixed precision they are of param_dtype (see whole()).
template <class M>
class FullySharded : public ShardedModule {
 public:
  // Compares the models over the ranks, takes rank 0's weights and buffers. Throws Exception: models or options that
  // differ, a name that no module has, types that it does not take.
  FullySharded(std::shared_ptr<M> module, const Group& group, FullyShardedOptions options = {})
      : ShardedModule(module, group, std::move(options)), module_(std::move(module)) {}
  // Of the holder that TORCH_MODULE makes.
  template <class Holder>
    requires std::is_base_of_v<torch::nn::ModuleHolder<M>, Holder> FullySharded(const Holder& module,
                                                                                const Group& group,
                                                                                FullyShardedOptions options = {})
        : FullySharded(module.ptr(), group, std::move(options)) {}

    // The module's forward(). Throws on every rank if a tensor that is an argument has no samples on one, while
    // gradients are recorded.
    template <class... Inputs>
    decltype(auto) forward(Inputs&&... inputs) {
      const fully_sharded::ForwardScope scope(state_);
      const auto check = [&](const auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, at::Tensor>) scope.check_batch(value);
      };
      (check(inputs), ...);
      try {
        if constexpr (std::is_same_v<M, torch::nn::SequentialImpl>) {
          return scope.output(scope.run_sequence(fully_sharded::input_in(scope, std::forward<Inputs>(inputs))...));
        } else if constexpr (std::is_same_v<decltype(module_->forward(std::forward<Inputs>(inputs)...)), at::Tensor>) {
          return scope.output(module_->forward(fully_sharded::input_in(scope, std::forward<Inputs>(inputs))...));
        } else {
          return module_->forward(fully_sharded::input_in(scope, std::forward<Inputs>(inputs))...);
        }
      } catch (const std::exception& error) {
        scope.explain(error);
        throw;
      }
    }
    // Another function of the model as its forward pass: act().
    template <class Act>
    decltype(auto) forward_by(Act&& act) {
      const fully_sharded::ForwardScope scope(state_);
      return std::forward<Act>(act)();
    }

    M& module() { return *module_; }
    M* operator->() { return module_.get(); }

   private:
    std::shared_ptr<M> module_;
};
template <class Holder>
  requires requires { typename Holder::ContainedType; }
FullySharded(const Holder&, const Group&, FullyShardedOptions = {})->FullySharded<typename Holder::ContainedType>;

}  // namespace tutti
