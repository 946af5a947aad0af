// Two chunks a rank, laid out as a V: the first half of the model runs down the ranks, the second half back up, so rank
// 0 has the first stage and the last, and the backward of a microbatch can begin on the rank where its forward ended.
// With backwards cut in two as in ZB-H1, and 2p - 1 microbatches or more, no rank waits between its first action and
// its last, where forward, gradient of the input and gradient of the weights take equal times. Every rank keeps 2p
// chunks (half the layers of a 1F1B stage each), as much as rank 0 of 1F1B.
//
// The list is that of at least 2p - 1 microbatches, less those that are not there.
#include <algorithm>

#include "tutti/planning/schedules/schedule.h"

namespace tutti {
namespace {

// The next microbatch of each kind of action in each chunk: they go in order.
class InOrder {
 public:
  explicit InOrder(int microbatches) : microbatches_(microbatches) {}
  void add(ActionKind kind, int chunk, int times = 1) {
    for (int i = 0; i < times; ++i) {
      const int microbatch = done_[int(kind)][chunk]++;
      if (microbatch < microbatches_) actions_.push_back({kind, microbatch, chunk});
    }
  }
  void add_backward(int chunk) {
    add(ActionKind::kBackwardInput, chunk);
    add(ActionKind::kBackwardWeight, chunk);
  }
  int done(ActionKind kind, int chunk) const { return done_[int(kind)][chunk]; }
  std::vector<Action> take() { return std::move(actions_); }

 private:
  int microbatches_, done_[4][2] = {};
  std::vector<Action> actions_;
};

}  // namespace

std::vector<Action> zero_bubble_v(const PipelineShape& shape, int rank) {
  using enum ActionKind;
  const int ranks = shape.ranks, total = std::max(shape.microbatches, 2 * ranks - 1);
  InOrder order(shape.microbatches);
  // Down the first arm until the first microbatch has come back up to this rank.
  order.add(kForward, 0, 2 * (ranks - rank) - 1);
  for (int i = 0; i < rank; ++i) order.add(kForward, 1), order.add(kForward, 0);
  for (int i = 0; i < ranks - rank; ++i) order.add(kForward, 1), order.add_backward(1);
  // Steady: each arm in turn, until all forwards are done.
  while (order.done(kForward, 1) < order.done(kForward, 0) || order.done(kForward, 0) < total) {
    if (order.done(kForward, 0) < total) order.add(kForward, 0);
    order.add_backward(0);
    order.add(kForward, 1), order.add_backward(1);
  }
  // Drain: what others wait for first.
  for (int i = 0; i < rank; ++i) order.add(kBackwardInput, 0), order.add(kBackwardInput, 1);
  for (int i = 0; i < ranks - rank; ++i) order.add_backward(0);
  for (const int chunk : {1, 0}) order.add(kBackwardWeight, chunk, total - order.done(kBackwardWeight, chunk));
  return order.take();
}

}  // namespace tutti
