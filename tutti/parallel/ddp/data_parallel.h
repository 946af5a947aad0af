#pragma once
// Data parallel training: every rank has the whole model and its own part of each batch; gradients are averaged over
// the ranks.
//
//   tutti::DataParallel ddp(model, world);          // compares the models, takes rank 0's weights
//   loss(ddp.forward(x), y).backward();             // gradients travel while backward still runs
//   ddp.finish();                                   // averaged on every rank, or throws the root cause
//   optimizer.step();
#include <memory>
#include <utility>

#include "tutti/parallel/ddp/reducer.h"

namespace tutti {

// M: a torch::nn::Module. (For the holder that TORCH_MODULE makes, pass holder.ptr().) One thread at a time, except
// that the hooks may run on autograd's threads. Every rank must construct it and call forward, backward and finish in
// the same order.
//
// While it lives, the model's parameters must stay the tensors that they are now, of the same type and with the same
// requires_grad: assign values in place (copy_), and do to() and register_parameter() before. Gradients must be dense:
// a sparse one throws an Exception that names the parameter, from backward() where that launches buckets (overlap),
// else from finish().
//
// It changes the process that constructs it:
//  - All large CPU tensors (64 KiB) made while it lives, the program's own included, lie in memory that fork() does not
//    inherit, where ranks share the host. A child that touches one of its parent dies of SIGSEGV. For a program that
//    forks (a loader with worker processes): DataParallelOptions{.heap_tensors = false}, at the price of a copy in each
//    collective; or fork before.
//  - Denormal numbers count as zero in this thread and those that it starts, and LibTorch takes this rank's share of
//    the cores unless OMP_NUM_THREADS is set: see prepare_compute() in tensor/compute.h.
template <class M>
class DataParallel {
 public:
  DataParallel(std::shared_ptr<M> module, const Group& group, DataParallelOptions options = {})
      : module_(std::move(module)), reducer_(std::make_unique<Reducer>(module_, group, options)) {}

  // The module's forward(), after its buffers were taken from rank 0 (when training).
  template <class... Arguments>
  decltype(auto) forward(Arguments&&... arguments) {
    reducer_->before_forward();
    return module_->forward(std::forward<Arguments>(arguments)...);
  }

  // After backward(): waits until every gradient is the average over the ranks. Throws Exception with the root cause;
  // then gradients are undefined and the group is lost. A parameter that got no gradient is an error that names it,
  // unless `find_unused` is set.
  void finish() { reducer_->finish(); }

  // Lets gradients go. Unlike LibTorch 1.13's optimizer.zero_grad(), which fills them with zeros to be added to, this
  // lets the next backward() make them afresh, which is faster.
  void zero_grad() { reducer_->zero_grad(); }

  // While the result lives, backward() only accumulates on this rank, and finish() does nothing; the first synchronised
  // step after it averages the sums.
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
  std::shared_ptr<M> module_;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace tutti
