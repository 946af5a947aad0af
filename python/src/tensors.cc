#include "tensors.h"

#include <c10/util/Exception.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

namespace tutti::python {
namespace {

std::optional<DType> dtype_of(at::ScalarType type) {
  switch (type) {
    case at::kFloat:
      return DType::kF32;
    case at::kDouble:
      return DType::kF64;
    case at::kHalf:
      return DType::kF16;
    case at::kBFloat16:
      return DType::kBF16;
    case at::kChar:
      return DType::kI8;
    case at::kByte:
      return DType::kU8;
    case at::kInt:
      return DType::kI32;
    case at::kLong:
      return DType::kI64;
    case at::kBool:
      return DType::kBool;
    case at::kComplexFloat:
      return DType::kC64;
    case at::kComplexDouble:
      return DType::kC128;
    default:
      return {};
  }
}

}  // namespace

Elements elements_of(const at::Tensor& tensor) {
  if (const auto dtype = dtype_of(tensor.scalar_type())) return {*dtype, 1};
  return {DType::kU8, std::size_t(tensor.element_size())};
}

DType reduced_type_of(const at::Tensor& tensor) {
  const auto dtype = dtype_of(tensor.scalar_type());
  TORCH_CHECK(dtype, "tutti: Invalid scalar type ", tensor.scalar_type(), ": it cannot be reduced");
  return *dtype;
}

std::optional<at::ScalarType> wider_type_of(at::ScalarType type) {
  switch (type) {
    case at::kShort:
    case at::kUInt16:
      return at::kInt;
    case at::kFloat8_e5m2:
    case at::kFloat8_e4m3fn:
    case at::kFloat8_e5m2fnuz:
    case at::kFloat8_e4m3fnuz:
      return at::kFloat;
    default:
      return {};
  }
}

Reduction reduction_of(const c10d::ReduceOp& op) {
  using Op = c10d::ReduceOp;
  switch (Op::RedOpType(op)) {
    case Op::SUM:
      return ReduceOp::kSum;
    case Op::AVG:
      return ReduceOp::kAvg;
    case Op::PRODUCT:
      return ReduceOp::kProduct;
    case Op::MIN:
      return ReduceOp::kMin;
    case Op::MAX:
      return ReduceOp::kMax;
    case Op::BAND:
      return ReduceOp::kBand;
    case Op::BOR:
      return ReduceOp::kBor;
    case Op::BXOR:
      return ReduceOp::kBxor;
    case Op::PREMUL_SUM: {
      const auto* const by = static_cast<const c10d::PreMulSumSupplement*>(op.supplement_.get());
      return premul_sum(by->tensor_factor.defined() ? by->tensor_factor.item<double>() : by->double_factor);
    }
    default:
      TORCH_CHECK(false, "tutti: this ReduceOp is not supported");
  }
}

void require_type(const char* verb, const at::Tensor& tensor, at::ScalarType type) {
  TORCH_CHECK(tensor.scalar_type() == type, "tutti: ", verb, ": Invalid tensor type: a tensor is ",
              tensor.scalar_type(), ", and others of this call are ", type,
              ": give all tensors of a call the same dtype");
}

bool are_adjacent(const Tensors& tensors) {
  const char* next = static_cast<const char*>(tensors.front().data_ptr());
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.is_contiguous() || tensor.numel() == 0 || tensor.data_ptr() != next ||
        tensor.scalar_type() != tensors.front().scalar_type())
      return false;
    next += tensor.nbytes();
  }
  return true;
}

}  // namespace tutti::python
