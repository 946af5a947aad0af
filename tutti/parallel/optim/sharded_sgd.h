#pragma once
// Sgd whose work and state are split over the ranks of a DataParallel: each rank averages the gradients of its part of
// every large parameter, steps that part, with momentum for that part only, and gives the new weights to all. What
// ZeRO (Rajbhandari et al., 2020) calls stage 1. The weights have the same bits as with ddp.finish() and Sgd.
//
//   tutti::DataParallel ddp(model, world);
//   tutti::ShardedSgd optimizer(ddp, {.lr = 0.05, .momentum = 0.9});
//   loss(ddp.forward(x), y).backward();
//   optimizer.step();                               // ddp.finish() is part of it
//   optimizer.zero_grad();
//
// Where all ranks share a host, each of two moves 14 bytes a parameter instead of 28 and keeps half the momentum. Else
// it is a reduce_scatter and an all_gather, which together move what an all_reduce does.
#include <memory>

#include "tutti/parallel/ddp/data_parallel.h"
#include "tutti/parallel/optim/sgd.h"

namespace tutti {

// Large: of DataParallelOptions::in_place_bytes or more; smaller parameters are averaged and stepped by every rank.
// Takes f32 and f64. Not thread-safe. Every rank makes one and calls step() alike.
//
// While it lives the memory of large parameters is the group's (the tensors stay the same), and peers write to it
// inside step(). After step() `.grad` of a large parameter is what this rank's own backward() made, not the average: to
// clip or look at averages, use Sgd. With gradients_as_views no parameter counts as large.
class ShardedSgd {
 public:
  template <class M>
  ShardedSgd(DataParallel<M>& ddp, SgdOptions options) : ShardedSgd(ddp.reducer(), options) {}
  ShardedSgd(Reducer& reducer, SgdOptions options);
  ~ShardedSgd();
  ShardedSgd(const ShardedSgd&) = delete;

  // Finishes the step of DataParallel and makes the optimizer's. Throws Exception with the root cause; then weights are
  // undefined and the group is lost.
  void step();
  // Lets gradients go, as DataParallel::zero_grad() does.
  void zero_grad();
  double lr() const;
  void set_lr(double lr);
  // Bytes of momentum that this rank keeps.
  std::size_t state_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace tutti
