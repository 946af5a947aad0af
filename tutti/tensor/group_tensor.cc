#include "tutti/tensor/group_tensor.h"

#include <ATen/Functions.h>

namespace tutti {

at::Tensor group_tensor(const Group& group, std::int64_t count, const at::TensorOptions& options) {
  auto memory = group.allocate(std::size_t(count) * std::size_t(options.dtype().itemsize())).or_throw();
  auto* const data = memory.get();
  return at::from_blob(
             data, {count}, [memory](void*) {}, options.requires_grad(false))
      .zero_();
}

}  // namespace tutti
