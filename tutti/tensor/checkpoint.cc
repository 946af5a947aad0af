#include "tutti/tensor/checkpoint.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "tutti/tensor/collectives.h"
#include "tutti/tensor/named_tensor.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

}  // namespace

Status save_module(const torch::nn::Module& module, const std::string& path, const SafetensorsMetadata& metadata) {
  auto tensors = tensors_of(module);
  std::vector<SafetensorsTensor> entries;
  for (auto& [name, tensor] : tensors) {
    tensor = tensor.detach().cpu().contiguous();
    const auto bytes = checked_bytes(tensor, name);
    entries.push_back({.name = name, .dtype = bytes.dtype, .shape = shape_of(tensor), .data = bytes.data});
  }
  return write_safetensors(path, entries, metadata);
}

Status load_module(torch::nn::Module& module, const std::string& path) {
  const auto file = TUTTI_TRY(SafetensorsFile::open(path));
  const auto tensors = tensors_of(module);
  std::vector<at::Tensor> loaded;
  for (const auto& [name, tensor] : tensors) {
    const auto* entry = file.find(name);
    if (!entry)
      return Error{
          .code = Code::kMismatch,
          .detail = fmt::format("{} has no tensor {}, which the model has ({})", path, name, describe(tensor))};
    const auto fresh = tensor.detach().cpu().contiguous().clone();
    const auto bytes = checked_bytes(fresh, name);
    if (entry->shape != shape_of(tensor) || entry->known_dtype() != bytes.dtype) {
      return Error{.code = Code::kMismatch,
                   .detail = fmt::format("{}: {} is {}[{}] in the file and {} in the model", path, name, entry->dtype,
                                         fmt::join(entry->shape, ", "), describe(tensor))};
    }
    TUTTI_TRY(file.read(*entry, {static_cast<std::byte*>(bytes.data), entry->bytes()}));
    loaded.push_back(fresh);
  }
  for (const auto& entry : file.entries()) {
    const bool known = std::any_of(tensors.begin(), tensors.end(), [&](const auto& t) { return t.name == entry.name; });
    if (!known)
      return Error{.code = Code::kMismatch,
                   .detail = fmt::format("{} holds {}, which the model does not have", path, entry.name)};
  }
  for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].tensor.detach().copy_(loaded[i]);
  return {};
}

}  // namespace tutti
