#pragma once
// The verbs on LibTorch tensors. (With gradients: tensor/autograd_collectives.h.) Tensors must be dense, contiguous, of
// a type in base/dtype.h, and on the CPU or a CUDA device (all tensors of a call on one device;
// docs/how-to/choose-an-engine.md). Other tensors throw an Exception that shows the tensor and says what to do. Shapes
// are free: only element counts matter (see comm/request.h). Results are written into the tensors given, below
// autograd: they carry no gradient, so a tensor that was computed with a gradient is rejected. barrier() and
// barrier_async() have no tensors: see comm/collectives.h.
//
// The plain form blocks and throws Exception. The ..._async form (isend, irecv) throws at once what is wrong with the
// tensors, and returns a TensorWork for the rest. Until that has ended, do not write to the tensors, nor read those
// that are written to. `at`: see comm/collectives.h.
#include <memory>
#include <span>
#include <variant>
#include <vector>

#include "tutti/comm/coalesced.h"
#include "tutti/comm/group.h"
#include "tutti/tensor/tensor_bytes.h"

namespace at {
class Tensor;
}

namespace tutti {

// An operation on tensors in flight. It keeps them alive. The last copy to go waits for the end, unless an exception
// unwinds the stack: then the operation is ended first, and its group with it (see comm/work.h).
class TensorWork {
 public:
  TensorWork() = default;  // has already succeeded
  TensorWork(std::variant<Work, Works, CoalescedWork> work, std::vector<at::Tensor> tensors);

  bool done() const;
  Status wait() const;
  void get() const { wait().or_throw(); }
  // get() for what is put on the current stream of the tensors' device after this: as Work::wait_on(). The last copy no
  // longer waits, so tensors that are freed then must have been allocated on this stream. Batches, and calls of several
  // tensors, are waited for on the host.
  void get_on_stream() const;

 private:
  struct Flight;
  std::shared_ptr<Flight> flight_;
};

// Runs a call (of tensor_requests.h) whose results only kernels on the current stream read. Where NCCL carries it, the
// host continues at once (Work::wait_on()).
void run_on_stream(const Group& group, const Request& request, CallSite at = CallSite::here());

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
// Rank r gets the reduction of ranks 0 to r, or, of an exscan, to r - 1, in `out`: as many elements as `in`, which it
// may be. Rank 0 of an exscan gets nothing: its `out` is not written and may be undefined.
void scan(const Group& group, const at::Tensor& in, const at::Tensor& out, Reduction op = ReduceOp::kSum,
          CallSite at = CallSite::here());
TensorWork scan_async(const Group& group, const at::Tensor& in, const at::Tensor& out, Reduction op = ReduceOp::kSum,
                      CallSite at = CallSite::here());
void exscan(const Group& group, const at::Tensor& in, const at::Tensor& out, Reduction op = ReduceOp::kSum,
            CallSite at = CallSite::here());
TensorWork exscan_async(const Group& group, const at::Tensor& in, const at::Tensor& out, Reduction op = ReduceOp::kSum,
                        CallSite at = CallSite::here());
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

// From whichever rank sends first with this tag: its number. `source` of the asynchronous form is written before it
// ends, and has to stay that long.
int recv_any(const Group& group, const at::Tensor& tensor, int tag = 0, CallSite at = CallSite::here());
TensorWork irecv_any(const Group& group, const at::Tensor& tensor, std::int32_t& source, int tag = 0,
                     CallSite at = CallSite::here());
// Sends and receives that are started together; their order does not matter (see batch_isend_irecv in
// comm/collectives.h).
class TensorBatch {
 public:
  explicit TensorBatch(const Group& group);
  ~TensorBatch();
  TensorBatch& send(const at::Tensor& tensor, int peer, int tag = 0);
  TensorBatch& recv(const at::Tensor& tensor, int peer, int tag = 0);
  TensorBatch& recv_any(const at::Tensor& tensor, std::int32_t& source, int tag = 0);
  TensorWork submit(CallSite at = CallSite::here());

 private:
  Group group_;
  std::vector<Request> requests_;
  std::vector<at::Tensor> tensors_;
};

// The _v verbs: parts of different sizes, empty ones included; splits count elements, not rows, and are copied.
// Rank r gives out_splits[r]; all ranks give the same splits.
void all_gather_v(const Group& group, const at::Tensor& in, const at::Tensor& out,
                  std::span<const std::size_t> out_splits, CallSite at = CallSite::here());
TensorWork all_gather_v_async(const Group& group, const at::Tensor& in, const at::Tensor& out,
                              std::span<const std::size_t> out_splits, CallSite at = CallSite::here());
// Rank r gets the reduced in_splits[r]; all ranks give the same splits.
void reduce_scatter_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits,
                      const at::Tensor& out, Reduction op = ReduceOp::kSum, CallSite at = CallSite::here());
TensorWork reduce_scatter_v_async(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits,
                                  const at::Tensor& out, Reduction op = ReduceOp::kSum, CallSite at = CallSite::here());
// `out` and out_splits matter on the root; elsewhere they may be undefined and empty.
void gather_v(const Group& group, const at::Tensor& in, const at::Tensor& out, std::span<const std::size_t> out_splits,
              int root, CallSite at = CallSite::here());
TensorWork gather_v_async(const Group& group, const at::Tensor& in, const at::Tensor& out,
                          std::span<const std::size_t> out_splits, int root, CallSite at = CallSite::here());
// `in` and in_splits matter on the root; elsewhere they may be undefined and empty.
void scatter_v(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits, const at::Tensor& out,
               int root, CallSite at = CallSite::here());
TensorWork scatter_v_async(const Group& group, const at::Tensor& in, std::span<const std::size_t> in_splits,
                           const at::Tensor& out, int root, CallSite at = CallSite::here());

// Many tensors, of any types and sizes, as one call; small ones of one type are sent packed (comm/coalesced.h).
void all_reduce_coalesced(const Group& group, std::span<const at::Tensor> tensors, Reduction op = ReduceOp::kSum,
                          CallSite at = CallSite::here());
TensorWork all_reduce_coalesced_async(const Group& group, std::span<const at::Tensor> tensors,
                                      Reduction op = ReduceOp::kSum, CallSite at = CallSite::here());
// ins[i] into outs[i].
void all_gather_coalesced(const Group& group, std::span<const at::Tensor> ins, std::span<const at::Tensor> outs,
                          CallSite at = CallSite::here());
TensorWork all_gather_coalesced_async(const Group& group, std::span<const at::Tensor> ins,
                                      std::span<const at::Tensor> outs, CallSite at = CallSite::here());
void reduce_scatter_coalesced(const Group& group, std::span<const at::Tensor> ins, std::span<const at::Tensor> outs,
                              Reduction op = ReduceOp::kSum, CallSite at = CallSite::here());
TensorWork reduce_scatter_coalesced_async(const Group& group, std::span<const at::Tensor> ins,
                                          std::span<const at::Tensor> outs, Reduction op = ReduceOp::kSum,
                                          CallSite at = CallSite::here());

}  // namespace tutti
