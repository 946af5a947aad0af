// The verbs as defined in comm/request.h. Positions are offsets in a rank's own input. In an all_to_all the part of
// rank r for rank q is at position q * part. In a broadcast the root's input is its `out`.
#include "tutti/comm/plans/simulator/goal.h"

#include <numeric>

namespace tutti::comm {

namespace {

// Bytes of the parts before that of `rank`. With rank == size: bytes of all parts.
std::size_t bytes_before(const Shape& shape, std::span<const std::size_t> splits, int rank) {
  const std::size_t elements = splits.empty() ? shape.count * std::size_t(rank)
                                              : std::accumulate(splits.begin(), splits.begin() + rank, std::size_t(0));
  return elements * shape.element;
}

}  // namespace

Goal goal_of(Kind kind, std::span<const Shape> shapes, int rank) {
  const Verb& v = verb(kind);
  const Shape& shape = shapes[std::size_t(rank)];
  const int size = shape.size, added = is_reduction(kind) ? summands(kind, rank, size) : 1;
  const auto is_one = [&](Verb::Ranks ranks, int who) {
    return ranks == Verb::Ranks::kAll || (ranks == Verb::Ranks::kRoot && who == shape.root);
  };
  Goal goal;
  if (v.combine == Verb::Combine::kNothing || is_point_to_point(kind)) return goal;
  const bool gives = is_one(v.gives, rank), gets = is_one(v.gets, rank) && added > 0;
  const bool is_one_buffer = v.in == Verb::Buffer::kNone;
  const auto common = gives_parts(kind) ? shape.in_splits : shape.out_splits;
  const std::size_t vector =
      (has_common_splits(kind) && !common.empty() ? common[std::size_t(rank)] : shape.count) * shape.element;
  if (gives && !is_one_buffer) goal.in_bytes = gives_parts(kind) ? bytes_before(shape, shape.in_splits, size) : vector;
  if (gets) goal.out_bytes = gets_parts(kind) ? bytes_before(shape, shape.out_splits, size) : vector;
  goal.overlap = shape.in_place && goal.in_bytes > 0 && goal.out_bytes > 0;
  if (goal.overlap && gets_parts(kind) && !gives_parts(kind)) goal.in_at = bytes_before(shape, shape.out_splits, rank);
  if (goal.overlap && gives_parts(kind) && !gets_parts(kind)) goal.out_at = bytes_before(shape, shape.in_splits, rank);
  if (gives)
    goal.before = {{is_one_buffer ? Range{Area::kOut, 0, vector} : Range{Area::kIn, 0, goal.in_bytes}, rank, 0}};
  if (gets && is_reduction(kind))
    goal.after = {
        {{Area::kOut, 0, vector}, 0, gives_parts(kind) ? bytes_before(shape, shape.in_splits, rank) : 0, added}};
  for (int from = 0; from < size && gets && !is_reduction(kind); ++from) {
    if (!is_one(v.gives, from)) continue;
    const Shape& theirs = shapes[std::size_t(from)];
    const std::size_t begin = gets_parts(kind) ? bytes_before(shape, shape.out_splits, from) : 0;
    const std::size_t end = gets_parts(kind) ? bytes_before(shape, shape.out_splits, from + 1) : vector;
    const std::size_t position = gives_parts(kind) ? bytes_before(theirs, theirs.in_splits, rank) : 0;
    goal.after.push_back({{Area::kOut, begin, end - begin}, from, position});
  }
  if (goal.overlap && gives_parts(kind) && !gets_parts(kind)) {  // the other parts stay unchanged
    const std::size_t behind = goal.out_at + goal.out_bytes;
    goal.after.push_back({{Area::kIn, 0, goal.out_at}, rank, 0});
    goal.after.push_back({{Area::kIn, behind, goal.in_bytes - behind}, rank, behind});
  }
  // Inputs must stay unchanged.
  if (!goal.overlap && !is_one_buffer) goal.after.insert(goal.after.end(), goal.before.begin(), goal.before.end());
  return goal;
}

}  // namespace tutti::comm
