#pragma once
// One call of torch.distributed: the requests that carry it, the tensors that have to stay until it has ended, and what
// has to be copied then because a tensor has holes.
#include <deque>
#include <functional>
#include <span>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "tensors.h"

namespace tutti::python {

struct Call {
  Call(c10d::OpType type, const char* title, Tensors inputs) : type(type), title(title), inputs(std::move(inputs)) {}

  // A buffer that is read, written, or both. What is returned is dense, and stays as long as the Call.
  at::Tensor input(const at::Tensor& tensor);
  at::Tensor output(const at::Tensor& tensor);
  at::Tensor in_place(const at::Tensor& tensor);
  // For a verb that reduces: the tensor, or a copy of a type that can be reduced: i32 for 16-bit integers, f32 for
  // 8-bit floats. `is_output`: the result gets back into the tensor, modulo 2^16 or rounded.
  at::Tensor reducible(const at::Tensor& tensor, bool is_output);
  // Several tensors as one buffer, in their order.
  at::Tensor inputs_as_one(const Tensors& tensors);
  at::Tensor outputs_as_one(const Tensors& tensors);
  // As long as the Call.
  std::span<const std::size_t> keep(std::vector<std::size_t> splits);

  const c10d::OpType type;
  const char* const title;  // for the profiler: "tutti:all_reduce"
  const Tensors inputs;     // for the profiler
  std::vector<Request> requests;
  Tensors results;
  std::int32_t source = -1;  // of a receive from any rank

  // Once the requests have ended.
  void copy_out();

 private:
  Tensors kept_;
  std::deque<std::vector<std::size_t>> splits_;
  std::vector<std::function<void()>> copies_;
};

}  // namespace tutti::python
