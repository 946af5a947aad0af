// Comparing models is cheap when they agree, which is nearly always: each rank writes its tensors down, one line each,
// and the ranks compare a hash of the text. Only if a hash differs do they exchange the texts, so that every rank can
// show the first line that differs, and whose it is.
//
// The tensors' values travel as bytes: a broadcast does not care what they mean. But not every buffer is a range of
// bytes. A slice of something larger has holes, which are not ours to write to: a packed copy travels and is copied
// back. And an expanded tensor has more elements than memory; of those that share an address one stands for all.
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

std::string line_of(const NamedTensor& named) {
  std::string line = fmt::format("{} {}", named.name, describe(named.tensor));
  if (!named.tensor.is_contiguous())
    line += fmt::format(" with strides [{}]", fmt::join(named.tensor.strides().vec(), ", "));
  return line + (named.tensor.requires_grad() ? "" : " (not trained)");
}

// FNV-1a.
std::int64_t hash_of(const std::string& text) {
  std::uint64_t hash = 14695981039346656037u;
  for (unsigned char c : text) hash = (hash ^ c) * 1099511628211u;
  return std::int64_t(hash);
}

std::vector<std::string> texts_of_all(const Group& group, const std::string& text) {
  const auto longest = std::size_t(all_reduce(group, std::int64_t(text.size()), ReduceOp::kMax));
  std::vector<std::uint8_t> mine(longest, 0), all(longest * std::size_t(group.size()));
  std::memcpy(mine.data(), text.data(), text.size());
  all_gather(group, std::span<const std::uint8_t>(mine), std::span(all));
  std::vector<std::string> texts;
  for (std::size_t at = 0; at < all.size(); at += longest) {
    const std::string padded(reinterpret_cast<const char*>(all.data()) + at, longest);
    texts.push_back(padded.substr(0, padded.find('\0')));
  }
  return texts;
}

// The first line in which a rank differs from rank 0, in words.
using Describe = std::function<std::string(std::size_t line, const std::string& first, const std::string& other,
                                           int rank, std::size_t first_count, std::size_t other_count)>;

Error difference(const Group& group, const std::vector<std::string>& texts, const Describe& describe,
                 const std::string& hint) {
  for (int rank = 1; rank < group.size(); ++rank) {
    if (texts[rank] == texts[0]) continue;
    const auto first = split(texts[0], '\n'), other = split(texts[rank], '\n');
    std::size_t at = 0;
    while (at < first.size() && at < other.size() && first[at] == other[at]) ++at;
    auto side = [&](const std::vector<std::string>& lines) {
      return at < lines.size() && !lines[at].empty() ? lines[at] : std::string("nothing");
    };
    return Error{.code = Code::kMismatch,
                 .detail = describe(at, side(first), side(other), rank, first.size() - 1, other.size() - 1),
                 .hint = hint,
                 .group = group.name(),
                 .rank = group.rank()};
  }
  return Error{.code = Code::kInternal, .detail = "texts compare equal, but their hashes differ"};
}

void require_same_text(const Group& group, const std::string& text, const Describe& describe, const std::string& hint) {
  const std::int64_t hash = hash_of(text);
  const auto least = all_reduce(group, hash, ReduceOp::kMin);
  const auto greatest = all_reduce(group, hash, ReduceOp::kMax);
  if (least != greatest) throw Exception(difference(group, texts_of_all(group, text), describe, hint));
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
  std::string text;
  for (const auto& named : tensors) {
    require_cpu_memory(named.tensor, "DataParallel: the model's tensor " + named.name);
    text += line_of(named) + "\n";
  }
  require_same_text(
      group, text,
      [](std::size_t line, const std::string& first, const std::string& other, int rank, std::size_t first_count,
         std::size_t other_count) {
        return fmt::format(
            "the ranks have different models: tensor {} of {} is {} on rank 0, but {} on rank {} ({} tensors there)",
            line + 1, first_count, first, other, rank, other_count);
      },
      "build the same model on every rank, from the same options");
}

void require_same_options(const Group& group, const std::string& whom, const std::vector<std::string>& lines) {
  require_same_text(
      group, join(lines, "\n") + "\n",
      [&](std::size_t, const std::string& first, const std::string& other, int rank, std::size_t, std::size_t) {
        return fmt::format("the ranks gave {} different options: {} on rank 0, but {} on rank {}", whom, first, other,
                           rank);
      },
      "give " + whom + " the same options on every rank");
}

void broadcast_values(const Group& group, std::span<const NamedTensor> tensors, int root) {
  std::vector<at::Tensor> pack;
  std::size_t packed_bytes = 0;
  auto flush = [&] {
    if (packed_bytes > 0) broadcast_packed(group, pack, packed_bytes, root);
    pack.clear();
    packed_bytes = 0;
  };
  std::vector<std::pair<at::Tensor, at::Tensor>> copied;  // one with holes, and the copy that travels
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
