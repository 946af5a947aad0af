#pragma once
// The verbs with gradients: each takes a tensor and returns a new one, and backward() takes it back with the transposed
// verb. (Without: tensor/collectives.h.)
//
//   at::Tensor rows = tutti::autograd::all_to_all(world, mine, sent, received);     // [sum(received), ...]
//   loss_of(rows).backward();                                                       // sends the gradients back
//
// Shapes: the first dimension is divided or joined, in the order of the ranks; the others must agree. Rows are indices
// of that dimension. A tensor without dimensions counts as one row. Inputs may have any strides. Element types as in
// tensor/collectives.h; results of integer and bool type have no gradient.
//
// Scale: backward() on every rank gives the gradient of the SUM of the losses of all ranks. If each rank has the loss
// of its own samples, nothing has to be scaled. If every rank computes the same loss, it counts size() times: divide by
// that, or use the regions below, which count the loss of all ranks once.
//
// Participation: while gradients are recorded, the result requires a gradient on every rank, whether that rank's input
// does or not. Every rank must then run backward() through it, and through all such results in the same order. One
// thread builds the graph, and one backward() call runs the calls in the reverse of the order in which they were made
// (for tensors on one device: autograd has a thread for each). If a rank does not run backward(), the other ranks fail
// with a Timeout that names it. A skipped call is a Mismatch that shows both calls. A rank without a loss (it received
// no rows) calls result.sum().backward(). torch::autograd::grad() prunes what does not lead to its inputs: give it
// inputs from before the call on every rank.
//
// A second derivative (create_graph) is rejected through the asynchronous forms, min and max, and verbs in which only
// some ranks have an input (broadcast, scatter, send, recv). It works through the others. Give DataParallel a separate
// group, or its calls mix with these. Errors: Exception. `at`: comm/collectives.h; calls in backward are recorded at
// the call site of the forward call.
#include <cstddef>
#include <memory>
#include <span>

#include "tutti/comm/group.h"

namespace at {
class Tensor;
}

namespace tutti::autograd {

// Backward: of sum, all_reduce(sum); of avg, all_reduce(avg); of premul_sum(f), f times all_reduce(sum). Of min and
// max, as amin() and amax() over the ranks: the gradient goes to the ranks that had the value, in equal shares. Other
// ops are rejected while gradients are recorded.
at::Tensor all_reduce(const Group& group, const at::Tensor& in, Reduction op = ReduceOp::kSum,
                      CallSite at = CallSite::here());
// Every rank gives a tensor of the shape and type of root's; only root's values and gradient count. Backward: reduce to
// root.
at::Tensor broadcast(const Group& group, const at::Tensor& in, int root = 0, CallSite at = CallSite::here());
// The result on root; elsewhere an empty tensor, [0]. sum, avg, premul_sum. Backward: broadcast from root.
at::Tensor reduce(const Group& group, const at::Tensor& in, int root, Reduction op = ReduceOp::kSum,
                  CallSite at = CallSite::here());
// [k, ...] of every rank become [size() * k, ...]. Backward: reduce_scatter.
at::Tensor all_gather(const Group& group, const at::Tensor& in, CallSite at = CallSite::here());
// rows[r] rows of rank r; all ranks give the same.
at::Tensor all_gather_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows,
                        CallSite at = CallSite::here());
// [size() * k, ...] become the reduced [k, ...] of this rank. sum, avg, premul_sum. Backward: all_gather.
at::Tensor reduce_scatter(const Group& group, const at::Tensor& in, Reduction op = ReduceOp::kSum,
                          CallSite at = CallSite::here());
// rows[r] rows for rank r; all ranks give the same.
at::Tensor reduce_scatter_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows,
                            Reduction op = ReduceOp::kSum, CallSite at = CallSite::here());
// [size() * k, ...]: k rows for each rank become k rows from each. Backward: all_to_all.
at::Tensor all_to_all(const Group& group, const at::Tensor& in, CallSite at = CallSite::here());
// in_rows[r] rows for rank r become out_rows[r] rows from rank r. Backward: all_to_all with the two exchanged.
at::Tensor all_to_all(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_rows,
                      std::span<const std::size_t> out_rows, CallSite at = CallSite::here());
// [k, ...] of every rank become [size() * k, ...] on root; elsewhere an empty tensor, [0]. Backward: scatter.
at::Tensor gather(const Group& group, const at::Tensor& in, int root, CallSite at = CallSite::here());
// rows[r] rows of rank r; elsewhere than on root `rows` may be empty.
at::Tensor gather_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows, int root,
                    CallSite at = CallSite::here());
// [size() * k, ...] on root become [k, ...] on each; `like` has that shape and type, its values do not matter. `in` may
// be undefined elsewhere. Backward: gather.
at::Tensor scatter(const Group& group, const at::Tensor& in, const at::Tensor& like, int root,
                   CallSite at = CallSite::here());
// rows[r] rows for rank r; elsewhere than on root `rows` may be empty.
at::Tensor scatter_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows,
                     const at::Tensor& like, int root, CallSite at = CallSite::here());

// From one rank to another. The sender gets a zero without dimensions that stands for what was sent. Add it to a loss,
// or call backward() on it, and this rank receives the gradient, which has another tag, tag ^ 2^20. If the sender drops
// it, it gets no gradient, and what the receiver sends back stays unread. So if recv() is part of a graph, the zero
// must be too. Both verbs block, and so does their backward: in a ring, one rank has to receive first.
[[nodiscard]] at::Tensor send(const Group& group, const at::Tensor& in, int peer, int tag = 0,
                              CallSite at = CallSite::here());
// `like` has the shape and type of what comes.
at::Tensor recv(const Group& group, const at::Tensor& like, int peer, int tag = 0, CallSite at = CallSite::here());

// A result in flight. Copies share it. One thread at a time.
//
//   auto exchanged = tutti::autograd::all_to_all_async(world, embedded, sent, received);
//   at::Tensor dense = bottom(x);                       // meanwhile
//   top(dense, exchanged.get()).sum().backward();
//
// Backward is the mirror image: it sends the gradient where get() was called, runs backward through `bottom` meanwhile,
// and waits where the call was made. Several results may be in flight; every rank calls get() on them in the same
// order. Without get() the result is not in the graph, and the destructor of the last copy waits.
class PendingTensor {
 public:
  PendingTensor() = default;  // get() throws
  bool done() const;          // whether get() would return at once
  at::Tensor get() const;     // throws Exception; later calls return the same

 private:
  friend struct PendingTensorAccess;
  struct State;
  std::shared_ptr<State> state_;
};

// Not min and max.
PendingTensor all_reduce_async(const Group& group, const at::Tensor& in, Reduction op = ReduceOp::kSum,
                               CallSite at = CallSite::here());
PendingTensor all_gather_async(const Group& group, const at::Tensor& in, CallSite at = CallSite::here());
PendingTensor all_gather_v_async(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows,
                                 CallSite at = CallSite::here());
PendingTensor reduce_scatter_async(const Group& group, const at::Tensor& in, Reduction op = ReduceOp::kSum,
                                   CallSite at = CallSite::here());
PendingTensor reduce_scatter_v_async(const Group& group, const at::Tensor& in, std::span<const std::size_t> rows,
                                     Reduction op = ReduceOp::kSum, CallSite at = CallSite::here());
PendingTensor all_to_all_async(const Group& group, const at::Tensor& in, CallSite at = CallSite::here());
PendingTensor all_to_all_async(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_rows,
                               std::span<const std::size_t> out_rows, CallSite at = CallSite::here());

// The regions of tensor parallelism (Megatron-LM, Shoeybi et al. 2019): all ranks of the group compute one loss, each
// the same, and each a part of what leads to it. `dim` < 0 counts from the end; it must divide by size(). (Along the
// sequence: all_gather and reduce_scatter above.)
// f: the tensor as it is. Backward: all_reduce(sum).
at::Tensor copy_to_region(const Group& group, const at::Tensor& in, CallSite at = CallSite::here());
// g: all_reduce(sum). Backward: the gradient as it is.
at::Tensor reduce_from_region(const Group& group, const at::Tensor& in, CallSite at = CallSite::here());
// This rank's slice of `dim`. Backward: all_gather.
at::Tensor scatter_to_region(const Group& group, const at::Tensor& in, std::int64_t dim = -1,
                             CallSite at = CallSite::here());
// The slices of all ranks, joined. Backward: this rank's slice of the gradient.
at::Tensor gather_from_region(const Group& group, const at::Tensor& in, std::int64_t dim = -1,
                              CallSite at = CallSite::here());

}  // namespace tutti::autograd
