#include "tutti/tensor/module_state.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <cstring>

#include "tutti/tensor/named_tensor.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

DType dtype_of(const NamedTensor& named) {
  return checked_bytes(at::empty({0}, named.tensor.options().device(at::kCPU).requires_grad(false)), named.name).dtype;
}

bool in_place(const at::Tensor& tensor) { return tensor.device().is_cpu() && tensor.is_contiguous(); }
// Of a tensor whose rows lie packed in memory of the CPU, apart from each other.
bool has_packed_rows(const at::Tensor& tensor) {
  return tensor.device().is_cpu() && tensor.dim() > 1 && tensor.numel() > 0 && tensor.select(0, 0).is_contiguous() &&
         tensor.stride(0) >= tensor.numel() / tensor.size(0);
}

// On the CPU. Pinned where `like` is on a GPU: the driver stages copies to other memory. LibTorch keeps it for the next
// rows.
at::Tensor host_memory_for(const at::Tensor& like) {
  return at::empty(like.sizes(), like.options().device(at::kCPU).pinned_memory(like.is_cuda()));
}

at::Tensor rows(const at::Tensor& tensor, std::uint64_t first, std::uint64_t count) {
  const at::Tensor all = tensor.detach();
  return all.dim() == 0 ? all : all.narrow(0, std::int64_t(first), std::int64_t(count));
}

RowSource rows_of(const at::Tensor& tensor) {
  return [tensor](std::uint64_t first, std::uint64_t count, std::byte* into) -> Status {
    const at::Tensor part = rows(tensor, first, count);
    const at::Tensor packed = part.is_cpu() ? part.contiguous() : host_memory_for(part).copy_(part);
    std::memcpy(into, packed.data_ptr(), std::size_t(packed.nbytes()));
    return {};
  };
}

RowSink into_rows_of(const at::Tensor& tensor) {
  return [tensor](std::uint64_t first, std::uint64_t count, const std::byte* data) -> Status {
    const at::Tensor part = rows(tensor, first, count), packed = host_memory_for(part);
    std::memcpy(packed.data_ptr(), data, std::size_t(packed.nbytes()));
    part.copy_(packed);
    return {};
  };
}

std::vector<NamedTensor> tensors(const torch::nn::Module& module) {
  auto all = without_repeats(tensors_of(module));
  for (const auto& named : all) require_memory(named.tensor, named.name);
  return all;
}

}  // namespace

StateBox state_box(TensorKey key, const at::Tensor& tensor, TensorShape shape, TensorBox box) {
  require_memory(tensor, key.name);
  const DType dtype = dtype_of({key.name, tensor});
  StateBox made{.key = std::move(key), .dtype = dtype, .shape = std::move(shape), .box = std::move(box)};
  if (in_place(tensor)) {
    made.data = tensor.data_ptr();
  } else if (has_packed_rows(tensor)) {
    made.data = tensor.data_ptr();
    made.row_stride = std::size_t(tensor.stride(0)) * tensor.element_size();
  } else {
    made.source = rows_of(tensor);
    made.sink = into_rows_of(tensor);
  }
  return made;
}

StateBox state_box(TensorKey key, const at::Tensor& tensor) {
  return state_box(std::move(key), tensor, shape_of(tensor), {});
}

void add_state(StateDict& state, const torch::nn::Module& module) {
  const auto all = tensors(module);
  const std::size_t parameters = without_repeats(parameters_of(module)).size();  // come first
  for (std::size_t i = 0; i < all.size(); ++i) {
    StateBox box = state_box({all[i].name, ""}, all[i].tensor);
    box.may_differ = i >= parameters;
    state.tensor(std::move(box));
  }
}

}  // namespace tutti
