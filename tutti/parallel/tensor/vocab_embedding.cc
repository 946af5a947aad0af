// Each rank copies the rows that it has into a result that is zero elsewhere, and the sum over ranks is the embedding.
// Backward, each rank picks the gradients of its ids out.
//
// On a GPU the host would wait for the number of a rank's ids, and for the least and the greatest id. There each rank
// looks a row up for every id, and overwrites those of other ranks' ids with zeros, and those of ids outside the
// vocabulary with NaN.
#include "tutti/parallel/tensor/vocab_embedding.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "tutti/parallel/tensor/division.h"
#include "tutti/parallel/tensor/rows.h"
#include "tutti/tensor/autograd_node.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/tensor_requests.h"

namespace tutti {
namespace {

using autograd::AutogradContext;
using autograd::variable_list;

constexpr char kEmbeddingWho[] = "VocabParallelEmbedding";

struct VocabLookup {
  Group group;
  bool sequence_parallel = false;
  std::vector<std::int64_t> sizes;  // of the ids
  std::int64_t ids = 0;             // all of them
  at::Tensor places, rows;          // which of the ids are on this rank, and which of its rows they choose
  // Of every id on a GPU, bool[ids, 1]: other ranks', and not in the vocabulary. There `rows` has one for every id.
  at::Tensor others, outside;
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
    at::Tensor out = weight.index_select(0, lookup.rows);
    if (lookup.others.defined()) out.masked_fill_(lookup.others, 0);
    if (lookup.outside.defined()) out.masked_fill_(lookup.outside, std::numeric_limits<double>::quiet_NaN());
    if (lookup.places.defined())
      out = at::zeros({lookup.ids, columns}, weight.options()).index_copy_(0, lookup.places, out);
    out = out.view(sizes);
    if (ranks_of(lookup.group) == 1) return out;
    if (lookup.sequence_parallel) return part_of_summed_rows(lookup.group, out);
    run_on_stream(lookup.group, tensor_requests::all_reduce(out, ReduceOp::kSum));
    return out;
  }

  static variable_list backward(AutogradContext*, const VocabLookup& lookup, const variable_list& gradients) {
    at::Tensor gradient =
        lookup.sequence_parallel ? gathered_rows(lookup.group, gradients[0]) : gradients[0].contiguous();
    gradient = gradient.view({-1, gradient.size(-1)});
    if (lookup.places.defined()) gradient = gradient.index_select(0, lookup.places);
    if (lookup.others.defined()) gradient = gradient.masked_fill(lookup.others, 0);
    return {at::embedding_dense_backward(gradient, lookup.rows, lookup.weight_rows, /*padding_idx=*/-1, false)};
  }
};

at::Tensor is_outside(const at::Tensor& ids, std::int64_t count) { return ids.lt(0).logical_or_(ids.ge(count)); }

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
  const bool on_gpu = !ids.device().is_cpu();
  if (!on_gpu) require_words(ids, options_.words);
  VocabLookup lookup{.group = group_,
                     .sequence_parallel = options_.sequence_parallel && ranks_of(group_) > 1,
                     .sizes = ids.sizes().vec(),
                     .ids = ids.numel(),
                     .rows = ids.reshape({-1}),
                     .weight_rows = weight.size(0)};
  if (lookup.sequence_parallel) equal_part(ids.size(0), ranks_of(group_), kEmbeddingWho, "rows of a sequence");
  const std::int64_t each = weight.size(0);
  if (on_gpu) lookup.outside = is_outside(lookup.rows, options_.words).unsqueeze_(1);
  if (ranks_of(group_) > 1) {
    lookup.rows = lookup.rows - rank_in(group_) * each;
    const at::Tensor others = is_outside(lookup.rows, each);
    if (on_gpu)
      lookup.others = others.unsqueeze(1);
    else
      lookup.places = at::nonzero(others.logical_not()).view({-1});
  }
  if (on_gpu)
    lookup.rows = lookup.rows.clamp(0, each - 1);
  else if (lookup.places.defined())
    lookup.rows = lookup.rows.index_select(0, lookup.places);
  return autograd::apply_node<EmbeddingNode>(std::move(lookup), weight);
}

}  // namespace tutti
