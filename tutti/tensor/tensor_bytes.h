#pragma once
// What a tensor is to a Request: its bytes, in memory of the CPU or of a GPU.
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "tutti/checkpoint/format/box.h"
#include "tutti/tensor/tensor_place.h"

namespace tutti {

// What a tensor is to a Request. `role` names it in errors: "gradient of fc1.weight", "out of all_gather".
struct TensorBytes {
  DType dtype = DType::kU8;
  void* data = nullptr;
  std::size_t count = 0;  // elements
  TensorPlace place{};
};
// In memory of the CPU: for those who touch it themselves.
TensorBytes checked_bytes(const at::Tensor& tensor, std::string_view role);
// On the CPU or on a GPU: for those who hand it to a group.
TensorBytes bytes_anywhere(const at::Tensor& tensor, std::string_view role);
// The same (anywhere) of one that is about to be written: it gets a new version, so that autograd notices when a value
// that it has saved was overwritten. Refused, while gradients are recorded: one that was computed from tensors that
// require one.
TensorBytes written_bytes(const at::Tensor& tensor, std::string_view role);
// The part of it that is not about element types and strides: a tensor with a shape and strides, in memory of the CPU.
void require_cpu_memory(const at::Tensor& tensor, std::string_view role);
void require_memory(const at::Tensor& tensor, std::string_view role);  // of the CPU or of a GPU
// Of a tensor without holes, for peers on this host; of one on a GPU, which they cannot read, none.
std::span<std::byte> host_bytes(const at::Tensor& dense);

TensorShape shape_of(const at::Tensor& tensor);

// "f32[64, 784]", "c64[3] on cuda:0": for errors.
std::string describe(const at::Tensor& tensor);

}  // namespace tutti
