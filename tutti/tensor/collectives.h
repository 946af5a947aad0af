#pragma once
// The verbs on LibTorch tensors. Tensors must be dense, contiguous, on the CPU and of a type in base/dtype.h; anything
// else throws an Exception that shows the tensor and says what to do. Shapes are free: only element counts matter (see
// comm/request.h). Results are written into the tensors given, below autograd: they carry no gradient. barrier() and
// barrier_async() have no tensors: see comm/collectives.h.
//
// The plain form blocks and throws Exception. The ..._async form (isend, irecv) throws at once what is wrong with the
// tensors, and returns a TensorWork for the rest: until that has ended, nobody may write to the tensors, nor read those
// that are written to. `at`: see comm/collectives.h.
#include <memory>
#include <span>
#include <string_view>

#include "tutti/comm/group.h"

namespace at {
class Tensor;
}

namespace tutti {

// What a tensor is to a Request. `role` names it in errors: "gradient of fc1.weight", "out of all_gather".
struct TensorBytes {
  DType dtype = DType::kU8;
  void* data = nullptr;
  std::size_t count = 0;  // elements
};
TensorBytes checked_bytes(const at::Tensor& tensor, std::string_view role);
// The part of it that is not about element types and strides: a tensor with a shape and strides, in memory of the CPU.
void require_cpu_memory(const at::Tensor& tensor, std::string_view role);

// "f32[64, 784]", "c64[3] on cuda:0": for errors.
std::string describe(const at::Tensor& tensor);

// An operation on tensors in flight. It keeps them alive. The last copy to go waits for the end, unless an exception
// unwinds the stack: then the operation is ended first, and its group with it (see comm/work.h).
class TensorWork {
 public:
  TensorWork() = default;  // has already succeeded
  TensorWork(Work work, std::span<const at::Tensor> tensors);

  bool done() const { return !flight_ || flight_->work.done(); }
  Status wait() const { return flight_ ? flight_->work.wait() : Status(); }
  void get() const { wait().or_throw(); }

 private:
  struct Flight {
    std::shared_ptr<void> tensors;  // goes last: until `work` is gone, the operation may use them
    Work work;
    ~Flight();
  };
  std::shared_ptr<Flight> flight_;
};

// In place, on every rank.
void all_reduce(const Group& group, const at::Tensor& tensor, Reduction op = ReduceOp::kSum,
                CallSite at = CallSite::here());
TensorWork all_reduce_async(const Group& group, const at::Tensor& tensor, Reduction op = ReduceOp::kSum,
                            CallSite at = CallSite::here());
// In place: read on `root`, written elsewhere.
void broadcast(const Group& group, const at::Tensor& tensor, int root = 0, CallSite at = CallSite::here());
TensorWork broadcast_async(const Group& group, const at::Tensor& tensor, int root = 0, CallSite at = CallSite::here());
// `out` (on root): as many elements as `in`, which it may be; it may be undefined elsewhere.
void reduce(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, Reduction op = ReduceOp::kSum,
            CallSite at = CallSite::here());
TensorWork reduce_async(const Group& group, const at::Tensor& in, const at::Tensor& out, int root,
                        Reduction op = ReduceOp::kSum, CallSite at = CallSite::here());
// `out`: size() times the elements of `in`, by rank. `in` may be this rank's part of `out`.
void all_gather(const Group& group, const at::Tensor& in, const at::Tensor& out, CallSite at = CallSite::here());
TensorWork all_gather_async(const Group& group, const at::Tensor& in, const at::Tensor& out,
                            CallSite at = CallSite::here());
// `out` (on root): size() times the elements of `in`, by rank; `in` may be root's part of it. It may be undefined
// elsewhere.
void gather(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, CallSite at = CallSite::here());
TensorWork gather_async(const Group& group, const at::Tensor& in, const at::Tensor& out, int root,
                        CallSite at = CallSite::here());
// `in` (on root): size() times the elements of `out`, by rank; `out` may be root's part of it. It may be undefined
// elsewhere.
void scatter(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, CallSite at = CallSite::here());
TensorWork scatter_async(const Group& group, const at::Tensor& in, const at::Tensor& out, int root,
                         CallSite at = CallSite::here());
// `in`: size() times the elements of `out`, by rank. `out` may be this rank's part of `in`.
void reduce_scatter(const Group& group, const at::Tensor& in, const at::Tensor& out, Reduction op = ReduceOp::kSum,
                    CallSite at = CallSite::here());
TensorWork reduce_scatter_async(const Group& group, const at::Tensor& in, const at::Tensor& out,
                                Reduction op = ReduceOp::kSum, CallSite at = CallSite::here());
// Equal parts, by rank: both tensors have the same number of elements, a multiple of size(); they may be one.
void all_to_all(const Group& group, const at::Tensor& in, const at::Tensor& out, CallSite at = CallSite::here());
TensorWork all_to_all_async(const Group& group, const at::Tensor& in, const at::Tensor& out,
                            CallSite at = CallSite::here());
// Uneven parts, one after another: in_splits[r] elements (not rows) go to rank r, out_splits[r] come from rank r. Not
// in place. The splits are copied.
void all_to_all(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits, const at::Tensor& out,
                std::span<const std::size_t> out_splits, CallSite at = CallSite::here());
TensorWork all_to_all_async(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits,
                            const at::Tensor& out, std::span<const std::size_t> out_splits,
                            CallSite at = CallSite::here());
// The receiver's tensor must have the size and the type of the sender's.
void send(const Group& group, const at::Tensor& tensor, int peer, int tag = 0, CallSite at = CallSite::here());
void recv(const Group& group, const at::Tensor& tensor, int peer, int tag = 0, CallSite at = CallSite::here());
TensorWork isend(const Group& group, const at::Tensor& tensor, int peer, int tag = 0, CallSite at = CallSite::here());
TensorWork irecv(const Group& group, const at::Tensor& tensor, int peer, int tag = 0, CallSite at = CallSite::here());

}  // namespace tutti
