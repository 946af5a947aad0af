#pragma once
// Maps Tutti's types and ops to NCCL's, and lists the combinations that NCCL supports.
#include <nccl.h>

#include "tutti/comm/request.h"

namespace tutti::comm::nccl_engine {

// An element in NCCL's types: a complex number is two real numbers.
struct Elements {
  ncclDataType_t type;
  std::size_t each;  // NCCL elements per element of Tutti
};
Elements elements_of(DType dtype);

// Whether NCCL has this reduction with Tutti's meaning. It has no bit operations, and its average of integers differs.
bool has_reduction(DType dtype, ReduceOp op);
ncclRedOp_t op_of(DType dtype, ReduceOp op);  // requires has_reduction(); not for premul_sum

// The factor of a premultiplied sum, in the type of the elements.
struct Scalar {
  unsigned char bytes[8];
};
Scalar scalar_of(DType dtype, double factor);

}  // namespace tutti::comm::nccl_engine
