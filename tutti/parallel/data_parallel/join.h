#pragma once
// Ranks with different numbers of batches. One that has none left would keep the others waiting in their next
// all_reduce; instead it takes part with zeros until all have finished.
//
//   tutti::join_uneven(ddp, [&] {
//     for (const auto& batch : mine) {                      // as many as this rank has
//       ddp.zero_grad();
//       loss(ddp.forward(batch.x), batch.y).backward();
//       ddp.finish();
//       optimizer.step();
//     }
//   });                                                      // now all ranks have the weights of who trained longest
#include <functional>

#include "tutti/parallel/data_parallel/data_parallel.h"

namespace tutti {

struct JoinUnevenOptions {
  // Gradients of a step are divided by the number of ranks, so those that have run out count as zeros: each sample
  // weighs the same. false: by the number of ranks that still have data, so the steps at the end are as long as those
  // before.
  bool divide_by_initial_world_size = true;
  // The first rank that runs out ends the loops of all: an Exception on every rank names it.
  bool throw_on_early_end = false;
};

// Every rank calls. Runs `train`, which takes synchronised steps (forward in training mode, backward, finish) of `ddp`
// and no other calls on its group; then takes part in the steps of the ranks that have more. Costs one small all_reduce
// a step. Buffers come from the highest rank that has data. In the end parameters and buffers are broadcast from the
// highest of the ranks that had most steps. A rank may have no batch at all. Gradients gathered in no_sync() after the
// last synchronised step of a rank are lost. With a sharded optimizer every synchronised step of `train` must call the
// optimizer's step(), or its zero_grad() to skip the step: a rank without data still steps its part of the weights.
// Throws Exception: what `train` throws, what a collective reports, a second join_uneven() inside.
void join_uneven(Reducer& reducer, const std::function<void()>& train, JoinUnevenOptions options = {});

template <class M>
void join_uneven(DataParallel<M>& ddp, const std::function<void()>& train, JoinUnevenOptions options = {}) {
  join_uneven(ddp.reducer(), train, options);
}

}  // namespace tutti
