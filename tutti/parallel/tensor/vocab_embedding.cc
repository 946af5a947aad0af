// Each rank copies the rows that it has into a result that is zero elsewhere, and the sum over ranks is the embedding.
// Backward, each rank picks the gradients of its ids out.
#include "tutti/parallel/tensor/vocab_embedding.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <utility>

#include "tutti/parallel/tensor/division.h"
#include "tutti/parallel/tensor/rows.h"
#include "tutti/tensor/autograd_node.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

using autograd::AutogradContext;
using autograd::variable_list;

constexpr char kEmbeddingWho[] = "VocabParallelEmbedding";

struct VocabLookup {
  Group group;
  bool sequence_parallel = false;
  std::vector<std::int64_t> sizes;  // of the ids
  at::Tensor places, rows;          // which of the ids are on this rank, and which of its rows they choose
  std::int64_t weight_rows = 0;
};

std::vector<std::int64_t> with_columns(std::vector<std::int64_t> sizes, std::int64_t columns) {
  sizes.push_back(columns);
  return sizes;
}

struct EmbeddingNode {
  static constexpr const char* kName = kEmbeddingWho;
  using State = VocabLookup;

  static at::Tensor forward(AutogradContext*, const VocabLookup& lookup, const at::Tensor& weight) {
    const std::int64_t columns = weight.size(1);
    const std::vector<std::int64_t> sizes = with_columns(lookup.sizes, columns);
    if (ranks_of(lookup.group) == 1) return weight.index_select(0, lookup.rows).view(sizes);
    at::Tensor out = at::zeros(sizes, weight.options());
    out.view({-1, columns}).index_copy_(0, lookup.places, weight.index_select(0, lookup.rows));
    if (lookup.sequence_parallel) return part_of_summed_rows(lookup.group, out);
    all_reduce(lookup.group, out);
    return out;
  }

  static variable_list backward(AutogradContext*, const VocabLookup& lookup, const variable_list& gradients) {
    at::Tensor gradient =
        lookup.sequence_parallel ? gathered_rows(lookup.group, gradients[0]) : gradients[0].contiguous();
    gradient = gradient.view({-1, gradient.size(-1)});
    if (ranks_of(lookup.group) > 1) gradient = gradient.index_select(0, lookup.places);
    return {at::embedding_dense_backward(gradient, lookup.rows, lookup.weight_rows, /*padding_idx=*/-1, false)};
  }
};

void require_words(const at::Tensor& ids, std::int64_t words) {
  if (ids.numel() == 0) return;
  const auto [least, most] = at::aminmax(ids);
  for (const std::int64_t id : {least.item<std::int64_t>(), most.item<std::int64_t>()})
    TUTTI_REQUIRE(id >= 0 && id < words, kEmbeddingWho, ": the id ", id, " is not in the vocabulary: expected 0 to ",
                  words - 1);
}

}  // namespace

std::int64_t padded_vocabulary(std::int64_t words, std::int64_t divisible, int ranks) {
  TUTTI_REQUIRE(words >= 1, "vocabulary: ", words, " words, expected 1 or more");
  TUTTI_REQUIRE(divisible >= 1 && ranks >= 1, "vocabulary: to be divisible by ", divisible, " for ", ranks,
                " ranks, expected 1 or more of both");
  const std::int64_t unit = divisible * ranks;
  return (words + unit - 1) / unit * unit;
}

VocabParallelEmbeddingImpl::VocabParallelEmbeddingImpl(const Group& group, VocabParallelEmbeddingOptions options)
    : group_(group), options_(std::move(options)) {
  TUTTI_REQUIRE(options_.columns >= 1, kEmbeddingWho, ": ", options_.columns, " columns, expected 1 or more");
  weight = register_parameter(
      "weight", draw_weights(layout_of("weight"), options_.initial, options_.dtype, padded_words() / ranks_of(group_)));
}

std::int64_t VocabParallelEmbeddingImpl::padded_words() const {
  return padded_vocabulary(options_.words, options_.divisible, ranks_of(group_));
}

ParameterLayout VocabParallelEmbeddingImpl::layout_of(std::string_view) const {
  return ParameterLayout::rows({std::uint64_t(options_.words), std::uint64_t(options_.columns)},
                               padded_words() / ranks_of(group_), rank_in(group_));
}

at::Tensor VocabParallelEmbeddingImpl::forward(const at::Tensor& ids) {
  TUTTI_REQUIRE(ids.defined() && ids.scalar_type() == at::kLong && ids.dim() >= 1, kEmbeddingWho, ": the ids are ",
                describe(ids), ", expected i64[seq, ...]");
  require_words(ids, options_.words);
  VocabLookup lookup{.group = group_,
                     .sequence_parallel = options_.sequence_parallel && ranks_of(group_) > 1,
                     .sizes = ids.sizes().vec(),
                     .rows = ids.reshape({-1}),
                     .weight_rows = weight.size(0)};
  if (lookup.sequence_parallel) equal_part(ids.size(0), ranks_of(group_), kEmbeddingWho, "rows of a sequence");
  if (ranks_of(group_) > 1) {
    const std::int64_t each = weight.size(0);
    lookup.rows = lookup.rows - rank_in(group_) * each;
    lookup.places = at::nonzero(lookup.rows.ge(0).logical_and_(lookup.rows.lt(each))).view({-1});
    lookup.rows = lookup.rows.index_select(0, lookup.places);
  }
  return autograd::apply_node<EmbeddingNode>(std::move(lookup), weight);
}

}  // namespace tutti
