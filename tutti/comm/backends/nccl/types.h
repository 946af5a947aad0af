#pragma once
// Tutti's types and ops in NCCL's words, and which pairs of them NCCL carries.
#include <nccl.h>

#include "tutti/comm/request.h"

namespace tutti::nccl_engine {

// An element as NCCL sees it: a complex number is two real ones.
struct Elements {
  ncclDataType_t type;
  std::size_t each;  // of them for one of ours
};
Elements elements_of(DType dtype);

// Whether NCCL has this reduction, with our meaning. It has no bits, and its average of integers is not ours.
bool has_reduction(DType dtype, ReduceOp op);
ncclRedOp_t op_of(DType dtype, ReduceOp op);  // of those that it has; not for premul_sum

// The factor of a premultiplied sum in the type of the elements.
struct Scalar {
  unsigned char bytes[8];
};
Scalar scalar_of(DType dtype, double factor);

}  // namespace tutti::nccl_engine
