#pragma once
// Which rows of a sequence a rank has, and what must not depend on it. Activations are [seq, batch, ...], so rows are
// positions. Context parallelism deals a sequence out in 2 * size() chunks, of which rank r has chunks r and
// 2 * size() - 1 - r ("zigzag"): under a causal mask all ranks then have the same work. Sequence parallelism divides
// those rows once more, in equal runs.
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tutti {

struct SequenceRange {
  std::int64_t first = 0, count = 0;
  bool operator==(const SequenceRange&) const = default;
};
// Ascending: row 0 of the rank's tensors is the first position of the first range.
using SequencePart = std::vector<SequenceRange>;

// Of `length` positions, those of rank `rank` of a context group: all for one rank. Throws where 2 * ranks does not
// divide the length (one rank takes any).
SequencePart context_part(std::int64_t length, int rank, int ranks);
// Of these rows, those of rank `rank` of a tensor group, in equal runs. Throws where they do not divide.
SequencePart tensor_part(const SequencePart& part, int rank, int ranks);

std::int64_t rows_of(const SequencePart& part);
// i64 [rows]: for position embeddings.
at::Tensor positions_of(const SequencePart& part, at::Device device = at::kCPU);
// The rows (dimension 0) of a whole sequence. Has a gradient.
at::Tensor take_part(const at::Tensor& whole, const SequencePart& part);

// Dropout of [rows, batch, ...]: an element stays with probability 1 - p, then times 1 / (1 - p). Whether it does
// depends on the seed, its position, and its place in the row: so any division of the sequence drops the same elements,
// and backward computes the mask again and keeps none. Tensors that every rank of a group has whole, or in runs of
// rows, are the only ones for which this holds. `seed`: seed_at() of step, replica, micro batch and layer.
at::Tensor sequence_dropout(const at::Tensor& x, double p, std::uint64_t seed, const SequencePart& part);

}  // namespace tutti
