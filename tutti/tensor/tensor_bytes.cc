// A tensor as the bytes that it is, after everything was checked that collectives rely on.
#include "tutti/tensor/tensor_bytes.h"

#include <ATen/core/Tensor.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>

#include "tutti/base/error.h"

namespace tutti {
namespace {

std::optional<DType> dtype_of(const at::Tensor& tensor) {
  const auto type = tensor.scalar_type();
  if (type == at::kFloat) return DType::kF32;
  if (type == at::kDouble) return DType::kF64;
  if (type == at::kHalf) return DType::kF16;
  if (type == at::kBFloat16) return DType::kBF16;
  if (type == at::kChar) return DType::kI8;
  if (type == at::kByte) return DType::kU8;
  if (type == at::kInt) return DType::kI32;
  if (type == at::kLong) return DType::kI64;
  if (type == at::kBool) return DType::kBool;
  if (type == at::kComplexFloat) return DType::kC64;
  if (type == at::kComplexDouble) return DType::kC128;
  return {};
}

[[noreturn]] void refuse(std::string_view role, const at::Tensor& tensor, std::string_view why, std::string hint) {
  throw Exception(invalid_argument(fmt::format("{}, {}, {}", role, describe(tensor), why), std::move(hint)));
}

}  // namespace

TensorShape shape_of(const at::Tensor& tensor) { return {tensor.sizes().begin(), tensor.sizes().end()}; }

std::string describe(const at::Tensor& tensor) {
  if (!tensor.defined()) return "an undefined tensor";
  const auto dtype = dtype_of(tensor);
  std::string text = fmt::format("{}[{}]", dtype ? name(*dtype) : c10::toString(tensor.scalar_type()),
                                 fmt::join(tensor.sizes().vec(), ", "));
  if (!tensor.device().is_cpu()) text += fmt::format(" on {}", tensor.device().str());
  return text;
}

void require_memory(const at::Tensor& tensor, std::string_view role) {
  if (!tensor.defined()) refuse(role, tensor, "holds nothing", "give a tensor of the right shape");
  if (!tensor.device().is_cpu() && !tensor.is_cuda())
    refuse(role, tensor, "is not on the CPU, nor on a CUDA device", "move it with tensor.to(torch::kCPU)");
  if (tensor.layout() != at::kStrided) refuse(role, tensor, "is not dense", "convert it with tensor.to_dense()");
}

void require_cpu_memory(const at::Tensor& tensor, std::string_view role) {
  if (tensor.defined() && !tensor.device().is_cpu())
    refuse(role, tensor, "is not on the CPU", "move it with tensor.to(torch::kCPU)");
  require_memory(tensor, role);
}

std::span<std::byte> host_bytes(const at::Tensor& dense) {
  if (!dense.device().is_cpu()) return {};
  return {static_cast<std::byte*>(dense.data_ptr()), dense.nbytes()};
}

TensorBytes checked_bytes(const at::Tensor& tensor, std::string_view role) {
  require_cpu_memory(tensor, role);
  return bytes_anywhere(tensor, role);
}

TensorBytes bytes_anywhere(const at::Tensor& tensor, std::string_view role) {
  require_memory(tensor, role);
  const auto dtype = dtype_of(tensor);
  if (!dtype)
    refuse(role, tensor, "has an element type that collectives do not know",
           "convert it, for example with tensor.to(torch::kFloat); known are f32, f64, f16, bf16, i8, u8, i32, i64, "
           "bool, c64, c128");
  if (!tensor.is_contiguous())
    refuse(role, tensor, fmt::format("is not contiguous (strides [{}])", fmt::join(tensor.strides().vec(), ", ")),
           "use tensor.contiguous(), and copy the result back if it is written to");
  // Such a view shows other values than its memory holds.
  if (tensor.is_conj() || tensor.is_neg())
    refuse(role, tensor, fmt::format("is a lazy {}", tensor.is_conj() ? "conjugate" : "negative"),
           fmt::format("use tensor.resolve_{}()", tensor.is_conj() ? "conj" : "neg"));
  return {.dtype = *dtype, .data = tensor.data_ptr(), .count = std::size_t(tensor.numel()), .place = place_of(tensor)};
}

TensorBytes written_bytes(const at::Tensor& tensor, std::string_view role) {
  const auto bytes = bytes_anywhere(tensor, role);
  // A parameter (a leaf) may be written to: nothing has led to its values.
  if (c10::GradMode::is_enabled() && tensor.requires_grad() && !tensor.is_leaf())
    refuse(role, tensor, "has a gradient that would not know of what is written to it",
           "use tensor.detach(), a torch::NoGradGuard, or the form of the verb that has a gradient "
           "(tensor/autograd_collectives.h)");
  if (!tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
  return bytes;
}

}  // namespace tutti
