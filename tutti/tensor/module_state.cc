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

RowSource rows_of(const at::Tensor& tensor) {
  return [tensor](std::uint64_t first, std::uint64_t count, std::byte* into) -> Status {
    const auto part = tensor.dim() == 0 ? tensor : tensor.narrow(0, std::int64_t(first), std::int64_t(count));
    const auto packed = part.detach().cpu().contiguous();
    std::memcpy(into, packed.data_ptr(), std::size_t(packed.nbytes()));
    return {};
  };
}

std::vector<NamedTensor> tensors(const torch::nn::Module& module) {
  auto all = without_repeats(tensors_of(module));
  for (const auto& named : all) require_memory(named.tensor, named.name);
  return all;
}

}  // namespace

std::vector<SavedBox> saved_boxes(const torch::nn::Module& module) {
  std::vector<SavedBox> boxes;
  for (const auto& named : tensors(module)) {
    SavedBox box{.key = {named.name, ""}, .dtype = dtype_of(named), .shape = shape_of(named.tensor)};
    if (in_place(named.tensor)) {
      box.data = named.tensor.data_ptr();
    } else {
      box.source = rows_of(named.tensor);
    }
    boxes.push_back(std::move(box));
  }
  return boxes;
}

std::vector<ExpectedTensor> expected_tensors(const torch::nn::Module& module) {
  std::vector<ExpectedTensor> wanted;
  for (const auto& named : tensors(module))
    wanted.push_back({{named.name, ""}, dtype_of(named), shape_of(named.tensor)});
  return wanted;
}

Status read_module(const CheckpointReader& reader, const torch::nn::Module& module) {
  for (const auto& named : tensors(module)) {
    const TensorKey key{named.name, ""};
    const DType dtype = dtype_of(named);
    const auto* stored = reader.find(key);
    if (!stored || stored->dtype != dtype || stored->shape != shape_of(named.tensor))
      return Error{.code = Code::kMismatch,
                   .detail = fmt::format(
                       "{}: {} is {}, and {} in the model", reader.folder(), named.name,
                       stored ? std::string(name(stored->dtype)) + shape_text(stored->shape) : std::string("not there"),
                       describe(named.tensor))};
    const bool direct = in_place(named.tensor);
    const auto into = direct ? named.tensor.detach() : at::empty(named.tensor.sizes(), named.tensor.scalar_type());
    TUTTI_TRY(reader.read(key, {static_cast<std::byte*>(into.data_ptr()), std::size_t(into.nbytes())}));
    if (!direct) named.tensor.detach().copy_(into);
  }
  return {};
}

}  // namespace tutti
