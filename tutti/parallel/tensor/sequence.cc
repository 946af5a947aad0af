// The mask of dropout is a hash of (seed, position, place in the row): random_mask.h.
#include "tutti/parallel/tensor/sequence.h"

#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/parallel/tensor/division.h"
#include "tutti/parallel/tensor/dropout_mask.h"
#include "tutti/parallel/tensor/random_mask.h"
#include "tutti/tensor/autograd_node.h"
#include "tutti/tensor/tensor_bytes.h"

namespace tutti {
namespace {

using autograd::AutogradContext;
using autograd::variable_list;

struct Dropout {
  double probability;
  std::uint64_t seed;
  SequencePart part;
};

// [rows, ...], contiguous: 1 / (1 - p) or 0.
at::Tensor mask_like(const at::Tensor& x, const Dropout& dropout) {
  const at::ScalarType type = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const std::int64_t row = x.size(0) == 0 ? 0 : x.numel() / x.size(0);
  const RandomMask random(dropout.probability, dropout.seed);
  if (!x.device().is_cpu()) {
    const auto options = x.options().dtype(at::kLong);
    const at::Tensor keys = row_keys(random, positions_of(dropout.part, x.device()), at::zeros({}, options));
    return dropout_factors(random, keys, at::arange(row, options), type).view(x.sizes());
  }
  const at::Tensor mask = at::empty(x.sizes(), type);
  std::int64_t at_row = 0;
  for (const SequenceRange& range : dropout.part) {
    for (std::int64_t i = 0; i < range.count; ++i, ++at_row) {
      const std::uint64_t key = random.row_key(std::uint64_t(range.first + i));
      if (mask.scalar_type() == at::kDouble) {
        random.fill(key, 0, std::span(mask.data_ptr<double>() + at_row * row, std::size_t(row)));
      } else {
        random.fill(key, 0, std::span(mask.data_ptr<float>() + at_row * row, std::size_t(row)));
      }
    }
  }
  return mask;
}

at::Tensor dropped(const at::Tensor& x, const Dropout& dropout) {
  const at::Tensor mask = mask_like(x, dropout);
  return mask.mul_(x).to(x.scalar_type());
}

struct DropoutNode {
  static constexpr const char* kName = "sequence_dropout";
  static constexpr bool kTwiceDifferentiable = true;
  using State = Dropout;

  static at::Tensor forward(AutogradContext*, const Dropout& dropout, const at::Tensor& x) {
    return dropped(x, dropout);
  }
  static variable_list backward(AutogradContext*, const Dropout& dropout, const variable_list& gradients) {
    return {sequence_dropout(gradients[0], dropout.probability, dropout.seed, dropout.part)};
  }
};

}  // namespace

SequencePart context_part(std::int64_t length, int rank, int ranks) {
  if (ranks == 1) return {{0, length}};
  const std::int64_t chunk = equal_part(length, 2 * ranks, "context parallelism", "positions (in two chunks a rank)");
  const SequenceRange early{rank * chunk, chunk}, late{(2 * ranks - 1 - rank) * chunk, chunk};
  if (early.first + chunk == late.first) return {{early.first, 2 * chunk}};
  return {early, late};
}

SequencePart tensor_part(const SequencePart& part, int rank, int ranks) {
  const std::int64_t rows = equal_part(rows_of(part), ranks, "sequence parallelism", "rows of a sequence");
  const std::int64_t begin = rank * rows, end = begin + rows;
  SequencePart mine;
  std::int64_t before = 0;  // rows of the ranges so far
  for (const SequenceRange& range : part) {
    const std::int64_t first = std::max(begin, before), last = std::min(end, before + range.count);
    if (first < last) mine.push_back({range.first + first - before, last - first});
    before += range.count;
  }
  return mine;
}

std::int64_t rows_of(const SequencePart& part) {
  return std::accumulate(part.begin(), part.end(), std::int64_t(0),
                         [](std::int64_t rows, const SequenceRange& range) { return rows + range.count; });
}

at::Tensor positions_of(const SequencePart& part, at::Device device) {
  const at::TensorOptions options = at::TensorOptions(device).dtype(at::kLong);
  std::vector<at::Tensor> ranges = {at::empty({0}, options)};
  for (const SequenceRange& range : part) ranges.push_back(at::arange(range.first, range.first + range.count, options));
  return at::cat(ranges);
}

at::Tensor take_part(const at::Tensor& whole, const SequencePart& part) {
  for (const SequenceRange& range : part)
    TUTTI_REQUIRE(whole.defined() && whole.dim() >= 1 && range.first >= 0 && range.first + range.count <= whole.size(0),
                  "take_part: positions ", range.first, " to ", range.first + range.count - 1, " of ", describe(whole));
  if (part.size() == 1) return whole.narrow(0, part[0].first, part[0].count);
  std::vector<at::Tensor> ranges;
  for (const SequenceRange& range : part) ranges.push_back(whole.narrow(0, range.first, range.count));
  return ranges.empty() ? whole.narrow(0, 0, 0) : at::cat(ranges);
}

at::Tensor sequence_dropout(const at::Tensor& x, double p, std::uint64_t seed, const SequencePart& part) {
  TUTTI_REQUIRE(p >= 0 && p < 1, "sequence_dropout: probability ", p, ", expected 0 or more and less than 1");
  TUTTI_REQUIRE(x.defined() && x.dim() >= 1 && x.is_floating_point() && x.size(0) == rows_of(part),
                "sequence_dropout: the input is ", describe(x), ", expected [", rows_of(part), ", ...]");
  if (p == 0) return x;
  return autograd::apply_node<DropoutNode>({p, seed, part}, x.contiguous());
}

}  // namespace tutti
