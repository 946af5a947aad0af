#pragma once
// all_reduce of sparse tensors (torch::sparse_coo_tensor): each rank gives the entries that it has, any number of them,
// none included, coalesced or not, and gets those of all, added up by index.
//
// The same on every rank: sizes, element type, op, and, on ranks that have entries, the number of sparse dimensions.
// What differs ends the call on every rank with a kMismatch that names the rank; the group goes on. The result is
// coalesced, has no gradient, and the same bits on every rank: values of one index are added in the order of ranks. Its
// sparse dimensions are those of the entries; where no rank has any, the most that a rank gives.
//
// Ops: sum, avg, premul_sum, for the types that the dense verb takes them for; the others would need the elements that
// are not stored, and are refused. f16 and bf16 travel and are added as f32, and are rounded once; bool travels as i32,
// and its sum is an or. In memory of the CPU, of 8 dimensions at most. What travels, and from how many entries on a
// dense tensor is cheaper: docs/collectives.md.
#include <memory>

#include "tutti/comm/group.h"

namespace at {
class Tensor;
}

namespace tutti {

at::Tensor all_reduce_sparse(const Group& group, const at::Tensor& tensor, Reduction op = ReduceOp::kSum,
                             CallSite at = CallSite::here());

// A sum under way. Copies share it. Until get() nobody may write to the values of the input. The last copy to go waits
// for what has been started, unless an exception unwinds the stack: then the group is ended (see comm/work.h).
class PendingSparse {
 public:
  PendingSparse() = default;  // get() throws
  // Blocks, throws Exception; later calls return the same. What ranks bring was announced when the call was made; the
  // entries travel here. So every rank calls get(), at the same place among its calls on the group.
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
