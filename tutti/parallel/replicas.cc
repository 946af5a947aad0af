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
#include "tutti/tensor/device_numbers.h"
#include "tutti/tensor/group_tensor.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {
namespace {

constexpr std::size_t kSmall = std::size_t(64) << 10;
constexpr std::size_t kPack = std::size_t(16) << 20;

std::string text_of(const NamedTensor& named, DeviceNumbers& devices) {
  std::string text = fmt::format("{} {}", named.name, describe(named.tensor));
  if (const int number = devices.of(named.tensor.device()); number > 0) {
    text.resize(text.rfind(':'));
    if (number > 1) text += fmt::format(" (GPU {} of the model)", number);
  }
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

// The bytes of a tensor without holes.
at::Tensor as_bytes(const at::Tensor& dense) { return dense.detach().as_strided({dense.numel()}, {1}).view(at::kByte); }

void broadcast_large(const Group& group, const at::Tensor& dense, int root) {
  if (!dense.device().is_cpu()) return broadcast(group, as_bytes(dense), root);
  broadcast(group, std::span(static_cast<std::uint8_t*>(dense.data_ptr()), byte_count_of(dense)), root);
}

// On the CPU without LibTorch, whose operators take longer than copies of so few bytes.
void copy_small(const at::Tensor& tensor, const at::Tensor& pack, std::int64_t at, bool into_pack) {
  const auto bytes = std::int64_t(byte_count_of(tensor));
  if (tensor.device().is_cpu()) {
    auto* const packed = static_cast<std::byte*>(pack.data_ptr()) + at;
    void* const own = tensor.data_ptr();
    std::memcpy(into_pack ? packed : own, into_pack ? own : packed, std::size_t(bytes));
    return;
  }
  const at::Tensor packed = pack.narrow(0, at, bytes), own = as_bytes(tensor);
  into_pack ? packed.copy_(own) : own.copy_(packed);
}

void broadcast_packed(const Group& group, std::span<const at::Tensor> tensors, std::size_t bytes, int root) {
  const at::Tensor pack = group_tensor(group, std::int64_t(bytes), tensors.front().options().dtype(at::kByte));
  const auto copy_each = [&](bool into_pack) {
    std::int64_t at = 0;
    for (const auto& tensor : tensors) {
      copy_small(tensor, pack, at, into_pack);
      at += std::int64_t(byte_count_of(tensor));
    }
  };
  if (group.rank() == root) copy_each(true);
  broadcast(group, pack, root);
  if (group.rank() != root) copy_each(false);
}

}  // namespace

void require_same_structure(const Group& group, std::span<const NamedTensor> tensors) {
  std::vector<NamedValue> values;
  DeviceNumbers devices;
  for (const auto& named : tensors) {
    require_memory(named.tensor, "DataParallel: the model's tensor " + named.name);
    values.push_back({fmt::format("tensor {}", values.size() + 1), text_of(named, devices)});
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
    require_memory(named.tensor, "DataParallel: the model's tensor " + named.name);
    auto range = without_expansion(named.tensor);
    if (!range.is_non_overlapping_and_dense())
      range = copied.emplace_back(range, range.clone(at::MemoryFormat::Contiguous)).second;
    const std::size_t bytes = byte_count_of(range);
    if (bytes > kSmall) {
      broadcast_large(group, range, root);
    } else if (bytes > 0) {
      if (packed_bytes + bytes > kPack || (!pack.empty() && pack.front().device() != range.device())) flush();
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
