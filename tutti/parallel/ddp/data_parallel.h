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
  DataParallelStats stats() const { return reducer_->stats(); }

 private:
  std::shared_ptr<M> module_;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace tutti
