#pragma once
// The verbs on LibTorch tensors. Tensors must be dense, contiguous, on the CPU and of a type in base/dtype.h; anything
// else throws an Exception that shows the tensor and says what to do. Shapes are free: only element counts matter (see
// comm/request.h). Results are written into the tensors given, below autograd: they carry no gradient.
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

// "f32[64, 784]", "c64[3] on cuda:0": for errors.
std::string describe(const at::Tensor& tensor);

// An operation on tensors in flight. It keeps them alive; the last copy to go waits for the end.
class TensorWork {
 public:
  TensorWork() = default;  // has already succeeded
  TensorWork(Work work, std::span<const at::Tensor> tensors);

  bool done() const { return !flight_ || flight_->work.done(); }
  Status wait() const { return flight_ ? flight_->work.wait() : Status(); }
  void get() const { wait().or_throw(); }

 private:
  struct Flight {
    Work work;
    std::shared_ptr<void> tensors;
    ~Flight() { (void)work.wait(); }
  };
  std::shared_ptr<Flight> flight_;
};

// In place.
void all_reduce(const Group& group, const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
TensorWork all_reduce_async(const Group& group, const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum);
void broadcast(const Group& group, const at::Tensor& tensor, int root = 0);
TensorWork broadcast_async(const Group& group, const at::Tensor& tensor, int root = 0);
// `out` (on root): as `in`.
void reduce(const Group& group, const at::Tensor& in, const at::Tensor& out, int root, ReduceOp op = ReduceOp::kSum);
// `out`: size() times the elements of `in`, by rank.
void all_gather(const Group& group, const at::Tensor& in, const at::Tensor& out);
TensorWork all_gather_async(const Group& group, const at::Tensor& in, const at::Tensor& out);
void gather(const Group& group, const at::Tensor& in, const at::Tensor& out,
            int root);  // `out` may be undefined elsewhere
// `in`: size() times the elements of `out`, by rank.
void scatter(const Group& group, const at::Tensor& in, const at::Tensor& out,
             int root);  // `in` may be undefined elsewhere
void reduce_scatter(const Group& group, const at::Tensor& in, const at::Tensor& out, ReduceOp op = ReduceOp::kSum);
TensorWork reduce_scatter_async(const Group& group, const at::Tensor& in, const at::Tensor& out,
                                ReduceOp op = ReduceOp::kSum);
// Equal parts, by rank.
void all_to_all(const Group& group, const at::Tensor& in, const at::Tensor& out);
void send(const Group& group, const at::Tensor& tensor, int peer, int tag = 0);
void recv(const Group& group, const at::Tensor& tensor, int peer, int tag = 0);  // in place
TensorWork isend(const Group& group, const at::Tensor& tensor, int peer, int tag = 0);
TensorWork irecv(const Group& group, const at::Tensor& tensor, int peer, int tag = 0);

}  // namespace tutti
