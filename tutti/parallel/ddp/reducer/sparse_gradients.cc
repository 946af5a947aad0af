// Each rank gives the rows that it has, added up by index, and gets those of all, by rank: where two ranks have the
// same row their values are added in that order, on every rank alike.
#include "tutti/parallel/ddp/reducer/sparse_gradients.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>

#include "tutti/comm/collectives.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

// What a rank is about to give: rows, and how many of the dimensions are indices.
struct Announced {
  std::int64_t rows = 0, sparse_dimensions = 0;
};

}  // namespace

std::vector<std::string> sparse_parameters_of(const std::shared_ptr<torch::nn::Module>& module) {
  std::vector<std::string> names;
  for (const auto& item : module->named_modules()) {
    const auto* embedding = dynamic_cast<const torch::nn::EmbeddingImpl*>(item.value().get());
    const auto* bag = dynamic_cast<const torch::nn::EmbeddingBagImpl*>(item.value().get());
    if ((embedding && embedding->options.sparse()) || (bag && bag->options.sparse()))
      names.push_back(item.key().empty() ? "weight" : item.key() + ".weight");
  }
  return names;
}

at::Tensor average_sparse(const Group& group, const at::Tensor& mine, const at::Tensor& parameter, double divisor) {
  const auto own = mine.defined() ? mine.coalesce() : at::Tensor();
  const Announced announced = own.defined() ? Announced{own._nnz(), own.sparse_dim()} : Announced{};
  const auto size = std::size_t(group.size());
  std::vector<std::int64_t> all(2 * size);
  const std::int64_t given[] = {announced.rows, announced.sparse_dimensions};
  all_gather(group, std::span<const std::int64_t>(given), std::span(all));
  std::int64_t rows = 0, dimensions = 1;
  for (std::size_t r = 0; r < size; ++r) {
    rows += all[2 * r];
    dimensions = std::max(dimensions, all[2 * r + 1]);
  }
  for (std::size_t r = 0; r < size; ++r) {
    if (all[2 * r + 1] != 0 && all[2 * r + 1] != dimensions)
      throw Exception(Error{.code = Code::kMismatch,
                            .detail = fmt::format("the sparse gradient of {} has {} dimensions of indices on rank {}, "
                                                  "but {} on another",
                                                  describe(parameter), all[2 * r + 1], r, dimensions),
                            .hint = "use the same operators on every rank",
                            .group = group.name(),
                            .rank = group.rank()});
  }
  auto row_sizes = parameter.sizes().vec();
  row_sizes.erase(row_sizes.begin(), row_sizes.begin() + dimensions);
  std::int64_t width = 1;
  for (const auto extent : row_sizes) width *= extent;

  std::vector<std::size_t> index_splits, value_splits;
  for (std::size_t r = 0; r < size; ++r) {
    index_splits.push_back(std::size_t(all[2 * r] * dimensions));
    value_splits.push_back(std::size_t(all[2 * r] * width));
  }
  const auto like = parameter.options().requires_grad(false);
  const auto own_indices = own.defined() ? own.indices().t().contiguous() : at::empty({0, dimensions}, at::kLong);
  const auto own_values = own.defined() ? own.values().contiguous() : at::empty({0}, like);
  const auto indices = at::empty({rows, dimensions}, at::kLong);
  row_sizes.insert(row_sizes.begin(), rows);
  const auto values = at::empty(row_sizes, like);
  all_gather_v(group, own_indices, indices, index_splits);
  all_gather_v(group, own_values, values, value_splits);
  values.div_(divisor);
  return at::sparse_coo_tensor(indices.t(), values, parameter.sizes(), like.layout(at::kSparse)).coalesce();
}

}  // namespace tutti
