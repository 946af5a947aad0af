#include "tutti/comm/backends/nccl/types.h"

#include <cstring>

#include "tutti/base/float16.h"

namespace tutti::comm::nccl_engine {

Elements elements_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return {ncclFloat32, 1};
    case DType::kF64:
      return {ncclFloat64, 1};
    case DType::kF16:
      return {ncclFloat16, 1};
    case DType::kBF16:
      return {ncclBfloat16, 1};
    case DType::kI8:
      return {ncclInt8, 1};
    case DType::kU8:
    case DType::kBool:
      return {ncclUint8, 1};
    case DType::kI32:
      return {ncclInt32, 1};
    case DType::kI64:
      return {ncclInt64, 1};
    case DType::kC64:
      return {ncclFloat32, 2};
    case DType::kC128:
      return {ncclFloat64, 2};
  }
  return {ncclUint8, 1};
}

bool has_reduction(DType dtype, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return true;
    case ReduceOp::kAvg:
    case ReduceOp::kPremulSum:
      return is_floating(dtype) || is_complex(dtype);
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      return !is_complex(dtype);
    case ReduceOp::kBand:
    case ReduceOp::kBor:
      return dtype == DType::kBool;
    case ReduceOp::kBxor:
      return false;
  }
  return false;
}

// Bool elements are bytes of 0 and 1, so "or" is the maximum and "and" is the minimum.
ncclRedOp_t op_of(DType dtype, ReduceOp op) {
  const bool truth = dtype == DType::kBool;
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kPremulSum:
      return truth ? ncclMax : ncclSum;
    case ReduceOp::kAvg:
      return ncclAvg;
    case ReduceOp::kProduct:
      return truth ? ncclMin : ncclProd;
    case ReduceOp::kMin:
    case ReduceOp::kBand:
      return ncclMin;
    case ReduceOp::kMax:
    case ReduceOp::kBor:
    case ReduceOp::kBxor:
      return ncclMax;
  }
  return ncclSum;
}

Scalar scalar_of(DType dtype, double factor) {
  Scalar scalar{};
  const auto put = [&](auto value) { std::memcpy(scalar.bytes, &value, sizeof value); };
  switch (elements_of(dtype).type) {
    case ncclFloat64:
      put(factor);
      break;
    case ncclFloat16:
      put(to_half(float(factor)).bits);
      break;
    case ncclBfloat16:
      put(to_bfloat16(float(factor)).bits);
      break;
    default:
      put(float(factor));
  }
  return scalar;
}

}  // namespace tutti::comm::nccl_engine
