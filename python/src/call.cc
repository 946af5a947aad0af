#include "call.h"

#include <ATen/Functions.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/InferenceMode.h>
#include <c10/core/StreamGuard.h>

#include "tutti/tensor/device_adder.h"

namespace tutti::python {
namespace {

// On any thread, also for tensors of an inference mode.
void copy_into(const at::Tensor& to, const at::Tensor& from) {
  const c10::InferenceMode inference(to.is_inference());
  const at::NoGradGuard no_grad;
  to.copy_(from);
}

}  // namespace

void Call::accept(const at::Tensor& tensor) {
  TORCH_CHECK(tensor.defined(), "tutti: a tensor is None");
  TORCH_CHECK(tensor.layout() == at::kStrided, "tutti: the tensor is ", tensor.layout(),
              ": only all_reduce takes sparse tensors");
  TORCH_CHECK(tensor.is_cpu() || tensor.is_cuda(), "tutti: the tensor is on ", tensor.device(),
              ", and the backend tutti is for CPU and CUDA tensors");
  if (!device_) {
    device_ = tensor.device();
    if (tensor.is_cuda()) stream_ = c10::impl::VirtualGuardImpl(device_->type()).getStream(*device_);
  }
  TORCH_CHECK(*device_ == tensor.device(), "tutti: a tensor is on ", *device_, ", and another on ", tensor.device(),
              ": give all tensors of a call on one device");
}

void Call::accept_output(const at::Tensor& tensor) {
  accept(tensor);
  TORCH_CHECK(tensor.numel() == 0 || at::has_internal_overlap(tensor) != at::MemOverlap::Yes,
              "tutti: elements of the output tensor of size ", tensor.sizes(),
              " share memory, as expand() makes them: give a clone() of it");
}

at::Tensor Call::input(const at::Tensor& tensor) {
  accept(tensor);
  return kept_.emplace_back(tensor.contiguous());
}

at::Tensor Call::output(const at::Tensor& tensor) {
  accept_output(tensor);
  if (tensor.is_contiguous()) return kept_.emplace_back(tensor);
  const at::Tensor dense = kept_.emplace_back(at::empty(tensor.sizes(), tensor.options()));
  copies_.push_back([tensor, dense] { copy_into(tensor, dense); });
  return dense;
}

// Elements are counted in the order of the indices, since ranks may have them in different orders in memory.
at::Tensor Call::in_place(const at::Tensor& tensor) {
  accept_output(tensor);
  if (tensor.is_contiguous()) return kept_.emplace_back(tensor);
  const at::Tensor dense = kept_.emplace_back(tensor.contiguous());
  copies_.push_back([tensor, dense] { copy_into(tensor, dense); });
  return dense;
}

at::Tensor Call::reducible(const at::Tensor& tensor, bool is_output) {
  is_output ? accept_output(tensor) : accept(tensor);
  const auto wider = wider_type_of(tensor.scalar_type());
  if (!wider) return tensor;
  const at::Tensor copy = kept_.emplace_back(tensor.to(*wider).contiguous());
  if (is_output) copies_.push_back([tensor, copy] { copy_into(tensor, copy); });
  return copy;
}

at::Tensor Call::inputs_as_one(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) accept(tensor);
  if (are_adjacent(tensors)) {
    kept_.insert(kept_.end(), tensors.begin(), tensors.end());
    return tensors.front();
  }
  Tensors flat;
  for (const at::Tensor& tensor : tensors) flat.push_back(tensor.reshape({-1}));
  return kept_.emplace_back(at::cat(flat));
}

at::Tensor Call::outputs_as_one(const Tensors& tensors) {
  for (const at::Tensor& tensor : tensors) accept_output(tensor);
  if (are_adjacent(tensors)) {
    kept_.insert(kept_.end(), tensors.begin(), tensors.end());
    return tensors.front();
  }
  std::int64_t elements = 0;
  for (const at::Tensor& tensor : tensors) elements += tensor.numel();
  const at::Tensor all = kept_.emplace_back(at::empty({elements}, tensors.front().options().requires_grad(false)));
  copies_.push_back([tensors, all] {
    std::int64_t begin = 0;
    for (const at::Tensor& tensor : tensors) {
      copy_into(tensor, all.narrow(0, begin, tensor.numel()).view(tensor.sizes()));
      begin += tensor.numel();
    }
  });
  return all;
}

std::span<const std::size_t> Call::keep(std::vector<std::size_t> splits) {
  return splits_.emplace_back(std::move(splits));
}

void Call::place_requests() {
  if (!stream_) return;
  use_torch_adder();
  for (Request& request : requests) {
    request.device = stream_->device_index();
    request.stream = stream_->native_handle();
  }
}

std::vector<at::Device> Call::devices() const {
  std::vector<at::Device> devices;
  for (const at::Tensor& tensor : results)
    if (!tensor.is_cpu()) devices.push_back(tensor.device());
  return devices;
}

// This thread may have another current stream than the one that made the call, or work for which no one waits.
void Call::copy_out() {
  if (copies_.empty()) return;
  const c10::OptionalStreamGuard as_of_the_call(stream_);
  for (const auto& copy : copies_) copy();
  copies_.clear();
  if (stream_) stream_->synchronize();
}

}  // namespace tutti::python
