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
  if (flat.device().is_cpu()) {
    auto* const data = static_cast<std::byte*>(flat.data_ptr()) + offset * std::int64_t(flat.element_size());
    return at::from_blob(
        data, sizes, strides, [flat](void*) {}, flat.options());
  }
  // The device's allocator owns the storage, so record_stream() works.
  return at::empty({0}, flat.options()).set_(flat.storage(), flat.storage_offset() + offset, sizes, strides);
}

}  // namespace tutti
