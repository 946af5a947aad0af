// A few words go first, from the root to all: how many tensors, of which types and shapes, or that there are none, or
// what is wrong with them. So nobody has to know the shapes beforehand, and an error of the root is an error of all.
#include "tutti/parallel/scattered_batches.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

#include "tutti/comm/collectives.h"
#include "tutti/comm/json_objects.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

using Json = nlohmann::json;
using Tensors = std::vector<at::Tensor>;

Status check(const Group& group, const Tensors& batch) {
  const auto refuse = [&](std::size_t index, const std::string& why) {
    return Status(Error{
        .code = Code::kInvalidArgument,
        .detail = fmt::format("scatter_batch: tensor {} of the batch is {}, {}", index, describe(batch[index]), why)});
  };
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto& tensor = batch[i];
    if (!tensor.defined() || tensor.layout() != at::kStrided || !tensor.is_cpu())
      return refuse(i, "expected a dense one on the CPU");
    if (tensor.dim() == 0 || tensor.size(0) % group.size() != 0)
      return refuse(i, fmt::format("whose rows do not divide by {} ranks", group.size()));
    if (tensor.size(0) != batch[0].size(0)) return refuse(i, fmt::format("but tensor 0 has {} rows", batch[0].size(0)));
  }
  return {};
}

Json words_of(const Group& group, const std::optional<Tensors>& batch) {
  if (!batch) return {{"end", true}};
  if (const auto checked = check(group, *batch); !checked) return {{"error", checked.error().detail}};
  Json tensors = Json::array();
  for (const auto& tensor : *batch) {
    auto shape = tensor.sizes().vec();
    shape[0] /= group.size();
    tensors.push_back({{"type", int(tensor.scalar_type())}, {"shape", shape}});
  }
  return {{"tensors", tensors}};
}

std::span<std::uint8_t> raw_bytes_of(const at::Tensor& tensor) {
  return {static_cast<std::uint8_t*>(tensor.data_ptr()), std::size_t(tensor.numel()) * tensor.element_size()};
}

}  // namespace

std::optional<Tensors> scatter_batch(const Group& group, const std::optional<Tensors>& batch, int root) {
  const at::NoGradGuard no_grad;
  const bool reads = group.rank() == root;
  Json words;
  if (reads) words = words_of(group, batch);
  broadcast_json(group, words, root);
  if (words.contains("end")) return std::nullopt;
  if (words.contains("error")) {
    throw Exception(Error{.code = Code::kInvalidArgument,
                          .detail = words["error"].get<std::string>() + fmt::format(" (on rank {}, which reads)", root),
                          .group = group.name(),
                          .rank = group.rank()});
  }
  Tensors parts;
  for (const auto& word : words["tensors"]) {
    const auto index = parts.size();
    auto part = at::empty(word["shape"].get<std::vector<std::int64_t>>(), at::ScalarType(word["type"].get<int>()));
    const auto whole = reads ? (*batch)[index].contiguous() : at::Tensor();
    const std::span<const std::uint8_t> in = reads ? raw_bytes_of(whole) : std::span<std::uint8_t>();
    scatter(group, in, raw_bytes_of(part), root);
    parts.push_back(std::move(part));
  }
  return parts;
}

}  // namespace tutti
