#pragma once
// A tensor in memory that the peers on this host can read (Group::allocate).
#include <ATen/core/Tensor.h>

#include "tutti/comm/group.h"

namespace tutti {

// [count], zeros, of the type of `options`. Throws Exception where there is no memory left.
at::Tensor group_tensor(const Group& group, std::int64_t count, const at::TensorOptions& options);

}  // namespace tutti
