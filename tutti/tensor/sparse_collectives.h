#pragma once
// all_reduce of sparse tensors (torch::sparse_coo_tensor). Each rank gives any number of entries, coalesced or not, or
// none, and gets the entries of all ranks, added by index.
//
// Every rank must give the same sizes, element type and op. Ranks that have entries must give the same number of sparse
// dimensions. Otherwise the call fails on every rank with a kMismatch that names the rank, and the group stays usable.
// The result is coalesced and has no gradient. It has the same bits on every rank: values of one index are added in the
// order of ranks. Its sparse dimensions are those of the entries; if no rank has entries, the most that a rank gives.
//
// Ops: sum, avg, premul_sum, for the types that the dense verb takes them for. Other ops would need the elements that
// are not stored, and are rejected. f16 and bf16 are sent and added as f32, and rounded once. bool is sent as i32, and
// its sum is an or. Tensors have at most 8 dimensions, and are on the CPU or, on all ranks, on a GPU.
// docs/dev/algorithms.md says what is sent, and from how many entries on a dense tensor is cheaper.
#include <memory>

#include "tutti/comm/group.h"

namespace at {
class Tensor;
}

namespace tutti {

at::Tensor all_reduce_sparse(const Group& group, const at::Tensor& tensor, Reduction op = ReduceOp::kSum,
                             CallSite at = CallSite::here());

// A sum in flight. Copies share it. Do not write to the values of the input before get(). The destructor of the last
// copy waits for what has been started. If an exception unwinds the stack, it fails the group instead (comm/work.h).
class PendingSparse {
 public:
  PendingSparse() = default;  // get() throws
  // Blocks, throws Exception; later calls return the same tensor. The call has announced the numbers of entries; get()
  // sends the entries. So every rank calls get(), at the same place among its calls on the group.
  at::Tensor get() const;

 private:
  friend PendingSparse all_reduce_sparse_async(const Group& group, const at::Tensor& tensor, Reduction op, CallSite at);
  struct State;
  explicit PendingSparse(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
};
PendingSparse all_reduce_sparse_async(const Group& group, const at::Tensor& tensor, Reduction op = ReduceOp::kSum,
                                      CallSite at = CallSite::here());

}  // namespace tutti
