#pragma once
// One call of torch.distributed: the requests that carry it, the tensors that have to stay until it has ended, and what
// has to be copied then because a tensor has holes.
#include <c10/core/Stream.h>

#include <deque>
#include <functional>
#include <span>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include "tensors.h"

namespace tutti::python {

struct Call {
  Call(c10d::OpType type, const char* title, Tensors inputs) : type(type), title(title), inputs(std::move(inputs)) {}

  // A buffer that is read, written, or both. What is returned is dense, and stays as long as the Call. These functions
  // throw for tensors that are sparse, or not where the other tensors of the call are, and for outputs whose elements
  // share memory.
  at::Tensor input(const at::Tensor& tensor);
  at::Tensor output(const at::Tensor& tensor);
  at::Tensor in_place(const at::Tensor& tensor);
  // For a verb that reduces: the tensor, or a copy of a type that can be reduced: i32 for 16-bit integers, f32 for
  // 8-bit floats. `is_output`: the result gets back into the tensor, modulo 2^16 or rounded.
  at::Tensor reducible(const at::Tensor& tensor, bool is_output);
  // Several tensors as one buffer, in their order.
  at::Tensor inputs_as_one(const Tensors& tensors);
  at::Tensor outputs_as_one(const Tensors& tensors);
  // Once the requests have ended well, after what was given before.
  void at_end(std::function<void()> act) { copies_.push_back(std::move(act)); }
  // As long as the Call.
  std::span<const std::size_t> keep(std::vector<std::size_t> splits);

  const c10d::OpType type;
  const char* const title;  // for the profiler: "tutti:all_reduce"
  const Tensors inputs;     // for the profiler
  std::vector<Request> requests;
  Tensors results;
  std::int32_t source = -1;  // of a receive from any rank

  // On a GPU, the requests begin after what is on the current stream now, and have ended when their results can be
  // read.
  void place_requests();
  std::vector<at::Device> devices() const;  // of the results, without the CPU

  // When the requests have ended well.
  void copy_out();

 private:
  void accept(const at::Tensor& tensor);
  void accept_output(const at::Tensor& tensor);

  std::optional<at::Device> device_;   // of all tensors
  std::optional<c10::Stream> stream_;  // on a GPU: the current one when the call was made
  Tensors kept_;
  std::deque<std::vector<std::size_t>> splits_;
  std::vector<std::function<void()>> copies_;
};

}  // namespace tutti::python
