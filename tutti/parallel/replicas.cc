// Values are broadcast as bytes, whatever their type. Two kinds of tensors are not a range of bytes. A slice of
// something larger has holes, which must not be written: a packed copy is broadcast and copied back. An expanded tensor
// has more elements than memory: of the elements that share an address one is broadcast.
#include "tutti/parallel/replicas.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>

#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {
namespace {

constexpr std::size_t kSmall = std::size_t(64) << 10;
constexpr std::size_t kPack = std::size_t(16) << 20;

std::string text_of(const NamedTensor& named) {
  std::string text = fmt::format("{} {}", named.name, describe(named.tensor));
  if (!named.tensor.is_contiguous())
    text += fmt::format(" with strides [{}]", fmt::join(named.tensor.strides().vec(), ", "));
  return text + (named.tensor.requires_grad() ? "" : " (not trained)");
}

std::size_t byte_count_of(const at::Tensor& tensor) { return std::size_t(tensor.numel()) * tensor.element_size(); }

// A view of the same memory in which no element is there twice for having a stride of 0.
at::Tensor without_expansion(at::Tensor tensor) {
  for (std::int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.stride(d) == 0 && tensor.size(d) > 1) tensor = tensor.narrow(d, 0, 1);
  }
  return tensor;
}

void broadcast_bytes(const Group& group, void* data, std::size_t bytes, int root) {
  broadcast(group, std::span(static_cast<std::uint8_t*>(data), bytes), root);
}

void broadcast_packed(const Group& group, std::span<const at::Tensor> tensors, std::size_t bytes, int root) {
  const auto pack = group.allocate(std::max<std::size_t>(bytes, 1)).or_throw();
  auto each = [&](auto&& move) {
    std::byte* at = pack.get();
    for (const auto& tensor : tensors) {
      move(at, tensor.data_ptr(), byte_count_of(tensor));
      at += byte_count_of(tensor);
    }
  };
  if (group.rank() == root)
    each([](std::byte* packed, void* own, std::size_t size) { std::memcpy(packed, own, size); });
  broadcast_bytes(group, pack.get(), bytes, root);
  if (group.rank() != root)
    each([](std::byte* packed, void* own, std::size_t size) { std::memcpy(own, packed, size); });
}

}  // namespace

void require_same_structure(const Group& group, std::span<const NamedTensor> tensors) {
  std::vector<NamedValue> values;
  for (const auto& named : tensors) {
    require_cpu_memory(named.tensor, "DataParallel: the model's tensor " + named.name);
    values.push_back({fmt::format("tensor {}", values.size() + 1), text_of(named)});
  }
  values.push_back({"the number of tensors", std::to_string(tensors.size())});
  agree_on(group, "the ranks have different models", values,
           "build the same model on every rank, from the same options")
      .or_throw();
}

void require_same_options(const Group& group, const std::string& whom, const std::vector<NamedValue>& options) {
  agree_on(group, "the ranks gave " + whom + " different options", options,
           "give " + whom + " the same options on every rank")
      .or_throw();
}

void broadcast_values(const Group& group, std::span<const NamedTensor> tensors, int root) {
  std::vector<at::Tensor> pack;
  std::size_t packed_bytes = 0;
  auto flush = [&] {
    if (packed_bytes > 0) broadcast_packed(group, pack, packed_bytes, root);
    pack.clear();
    packed_bytes = 0;
  };
  std::vector<std::pair<at::Tensor, at::Tensor>> copied;  // one with holes, and the copy that is broadcast
  for (const auto& named : tensors) {
    require_cpu_memory(named.tensor, "DataParallel: the model's tensor " + named.name);
    auto range = without_expansion(named.tensor);
    if (!range.is_non_overlapping_and_dense())
      range = copied.emplace_back(range, range.clone(at::MemoryFormat::Contiguous)).second;
    const std::size_t bytes = byte_count_of(range);
    if (bytes > kSmall) {
      broadcast_bytes(group, range.data_ptr(), bytes, root);
    } else if (bytes > 0) {
      if (packed_bytes + bytes > kPack) flush();
      pack.push_back(range);
      packed_bytes += bytes;
    }
    if (group.rank() != root && !named.tensor.is_inference()) named.tensor.unsafeGetTensorImpl()->bump_version();
  }
  flush();
  if (group.rank() == root) return;
  for (const auto& [own, copy] : copied) own.copy_(copy);
}

}  // namespace tutti
