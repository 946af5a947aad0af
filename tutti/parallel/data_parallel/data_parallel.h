#pragma once
// Data parallel training: every rank has the whole model and its own part of each batch; gradients are averaged over
// the ranks.
//
//   const tutti::Compute compute(world);            // prepares the process
//   tutti::DataParallel ddp(model, world);          // compares the models, takes rank 0's weights
//   loss(ddp.forward(x), y).backward();             // gradients travel while backward still runs
//   ddp.finish();                                   // averaged on every rank, or throws the root cause
//   optimizer.step();
#include <concepts>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "tutti/parallel/data_parallel/precision/mixed_precision.h"
#include "tutti/parallel/data_parallel/reducer/reducer.h"
#include "tutti/tensor/compute.h"

namespace torch::nn {
template <class Contained>
class ModuleHolder;
}

namespace tutti {

// M: a torch::nn::Module. One thread at a time, except that the hooks may run on autograd's threads. Every rank must
// construct it and call forward, backward and finish in the same order.
//
// While the DataParallel exists, the model's parameters must stay the same tensors, with the same type and
// requires_grad. Assign values in place (copy_), and call to() and register_parameter() before. A sparse gradient where
// a dense one was promised (DataParallelOptions::sparse), or the reverse, ends the group with an Exception that names
// rank and parameter. backward() throws it if it launches buckets (overlap), otherwise finish() does.
//
// The model may be on a GPU, each rank's on its own (world.device()); all ranks use the same device type.
//
// It does not change the process, except that with logical_ranks LibTorch and its BLAS compute with one thread
// (fix_compute_threads()). A program prepares its process once, by a tutti::Compute before it (tensor/compute.h):
// memory that peers read, threads, denormal numbers. Without, steps are slower, and one line of warning says so.
template <class M>
class DataParallel {
 public:
  DataParallel(std::shared_ptr<M> module, const Group& group, DataParallelOptions options = {})
      : module_(std::move(module)), reducer_(std::make_unique<Reducer>(module_, group, options)) {}
  // Of the holder that TORCH_MODULE makes.
  template <std::derived_from<torch::nn::ModuleHolder<M>> Holder>
  DataParallel(const Holder& module, const Group& group, DataParallelOptions options = {})
      : DataParallel(module.ptr(), group, std::move(options)) {}

  // The module's forward(), after its buffers were taken from rank 0 (when training); under Autocast, if that was asked
  // for. Throws on every rank if a tensor that is an argument has no samples on one (allow_empty_batches).
  template <class... Arguments>
  decltype(auto) forward(Arguments&&... arguments) {
    (check_batch(arguments), ...);
    reducer_->before_forward();
    const Autocast precision(reducer_->options().autocast);
    return module_->forward(std::forward<Arguments>(arguments)...);
  }

  // After backward(): waits until every gradient is the average over the ranks. Throws Exception with the root cause;
  // then gradients are undefined and the group is lost. A parameter that got no gradient is an error that names it,
  // unless `find_unused_parameters` is set. A gradient that is not finite is an error that leaves the group as it was
  // (DataParallelOptions::finite_check).
  void finish() { reducer_->finish(); }

  // With DataParallelOptions::logical_ranks: those of this process, ascending; else none.
  std::vector<int> logical_ranks() const { return reducer_->logical_ranks(); }
  // The turn of the next of them begins; its forward() and backward() follow.
  void begin_logical_rank(int number) { reducer_->begin_logical_rank(number); }

  // For parameters in DataParallelOptions::delay_all_reduce_named_params: averages what their gradients have added up
  // to since the last call. Every rank calls. zero_grad() leaves them alone until then.
  void average_delayed() { reducer_->average_delayed(); }

  // With DataParallelOptions::finite_check: what the last finish() found, the same on every rank.
  std::optional<NonFiniteGradient> non_finite() const { return reducer_->non_finite(); }

  // Lets gradients go. Unlike LibTorch 1.13's optimizer.zero_grad(), which fills them with zeros to be added to, this
  // lets the next backward() make them afresh, which is faster.
  void zero_grad() { reducer_->zero_grad(); }

  // While the result exists, backward() only accumulates on this rank, and finish() does nothing. The first
  // synchronised step after it averages the sums.
  class NoSync {
   public:
    explicit NoSync(Reducer& reducer) : reducer_(reducer) { reducer_.set_sync(false); }
    ~NoSync() { reducer_.set_sync(true); }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    Reducer& reducer_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*reducer_); }

  M& module() { return *module_; }
  M* operator->() { return module_.get(); }
  Reducer& reducer() { return *reducer_; }  // for optimizers that work with it
  DataParallelStats stats() const { return reducer_->stats(); }

 private:
  template <class T>
  void check_batch(const T& argument) const {
    if constexpr (std::is_same_v<T, at::Tensor>) reducer_->check_batch(argument);
  }

  std::shared_ptr<M> module_;
  std::unique_ptr<Reducer> reducer_;
};
template <class Holder>
  requires requires { typename Holder::ContainedType; }
DataParallel(const Holder&, const Group&, DataParallelOptions = {})->DataParallel<typename Holder::ContainedType>;

}  // namespace tutti
