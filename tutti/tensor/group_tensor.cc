#include "tutti/tensor/group_tensor.h"

#include <ATen/Functions.h>

namespace tutti {

at::Tensor group_tensor(const Group& group, std::int64_t count, const at::TensorOptions& options) {
  if (!options.device().is_cpu()) return at::zeros({count}, options.requires_grad(false));
  auto memory = group.allocate(std::size_t(count) * std::size_t(options.dtype().itemsize())).or_throw();
  auto* const data = memory.get();
  return at::from_blob(
             data, {count}, [memory](void*) {}, options.requires_grad(false))
      .zero_();
}

at::Tensor alias_of(const at::Tensor& flat, std::int64_t offset, at::IntArrayRef sizes, at::IntArrayRef strides) {
  return at::empty({0}, flat.options()).set_(flat.storage(), flat.storage_offset() + offset, sizes, strides);
}

}  // namespace tutti
