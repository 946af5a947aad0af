#include "tutti/parallel/tensor/parameter_layout.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/module.h>

#include <algorithm>

#include "tutti/parallel/tensor/division.h"
#include "tutti/tensor/module_state.h"
#include "tutti/tensor/named_tensor.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

ParameterLayout layout_of(const torch::nn::Module& module, const std::string& name, const at::Tensor& tensor) {
  const auto* const known = dynamic_cast<const TensorParallelModule*>(&module);
  return known ? known->layout_of(name) : ParameterLayout::whole(shape_of(tensor));
}

void collect(const torch::nn::Module& module, const std::string& prefix, std::vector<PlacedParameter>& into) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    const at::Tensor& tensor = item.value();
    const auto is_same = [&](const PlacedParameter& other) { return other.tensor.is_same(tensor); };
    if (!tensor.defined() || std::any_of(into.begin(), into.end(), is_same)) continue;
    into.push_back({prefix + item.key(), tensor, layout_of(module, item.key(), tensor)});
  }
  for (const auto& child : module.named_children()) collect(*child.value(), prefix + child.key() + ".", into);
}

bool is_empty(const TensorBox& box) {
  return std::find(box.extent.begin(), box.extent.end(), std::uint64_t(0)) != box.extent.end();
}

}  // namespace

ParameterLayout ParameterLayout::whole(TensorShape shape, bool partial_gradient) {
  ParameterLayout layout{.shape = std::move(shape), .partial_gradient = partial_gradient};
  layout.boxes = {TensorBox::whole(layout.shape)};
  return layout;
}

ParameterLayout ParameterLayout::divide(TensorShape shape, std::int64_t dimension, int rank, int ranks,
                                        const std::string& who, const std::string& what,
                                        const std::vector<std::int64_t>& blocks) {
  ParameterLayout layout{.shape = std::move(shape), .dimension = dimension};
  const auto d = std::size_t(dimension);
  const auto length = std::int64_t(layout.shape.at(d));
  std::int64_t first = 0;
  for (const std::int64_t block : blocks.empty() ? std::vector<std::int64_t>{length} : blocks) {
    const std::int64_t part = equal_part(block, ranks, who, what);
    TensorBox box = TensorBox::whole(layout.shape);
    box.begin[d] = std::uint64_t(first + rank * part);
    box.extent[d] = std::uint64_t(part);
    layout.boxes.push_back(std::move(box));
    first += block;
  }
  TUTTI_REQUIRE(first == length, who, ": blocks of ", first, " ", what, " in all, expected ", length);
  return layout;
}

ParameterLayout ParameterLayout::rows(TensorShape shape, std::int64_t rows_each, int rank) {
  ParameterLayout layout{.shape = std::move(shape), .dimension = 0};
  const std::uint64_t all = layout.shape.at(0), each = std::uint64_t(rows_each);
  const std::uint64_t first = std::min(all, std::uint64_t(rank) * each);
  layout.boxes = {TensorBox::rows(layout.shape, first, std::min(all - first, each))};
  return layout;
}

std::vector<std::int64_t> ParameterLayout::local_sizes() const {
  std::vector<std::int64_t> sizes(shape.begin(), shape.end());
  if (!divided()) return sizes;
  sizes[std::size_t(dimension)] = 0;
  for (const TensorBox& box : boxes) sizes[std::size_t(dimension)] += std::int64_t(box.extent[std::size_t(dimension)]);
  return sizes;
}

at::Tensor ParameterLayout::part_of(const at::Tensor& whole) const {
  if (!divided()) return whole.clone();
  std::vector<at::Tensor> parts;
  for (const TensorBox& box : boxes) {
    const auto d = std::size_t(dimension);
    parts.push_back(whole.narrow(dimension, std::int64_t(box.begin[d]), std::int64_t(box.extent[d])));
  }
  return at::cat(parts, dimension);
}

std::vector<PlacedParameter> placed_parameters(const torch::nn::Module& module) {
  std::vector<PlacedParameter> all;
  collect(module, "", all);
  return all;
}

std::vector<std::pair<TensorBox, at::Tensor>> pieces(const ParameterLayout& layout, const at::Tensor& local) {
  std::vector<std::pair<TensorBox, at::Tensor>> parts;
  std::int64_t first = 0;
  for (const TensorBox& box : layout.boxes) {
    if (is_empty(box)) continue;
    if (!layout.divided()) {
      parts.emplace_back(box, local);
      continue;
    }
    const auto length = std::int64_t(box.extent[std::size_t(layout.dimension)]);
    parts.emplace_back(box, local.narrow(layout.dimension, first, length));
    first += length;
  }
  return parts;
}

void add_state(StateDict& state, std::span<const PlacedParameter> parameters) {
  for (const PlacedParameter& parameter : parameters)
    for (const auto& [box, part] : pieces(parameter.layout, parameter.tensor.detach()))
      state.tensor(state_box({parameter.name, ""}, part, parameter.layout.shape, box));
}

}  // namespace tutti
