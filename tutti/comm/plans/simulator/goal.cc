// The verbs as comm/request.h has them. Positions count in a rank's own input: in an all_to_all the part that rank r
// has for rank q is at position q * part, in a broadcast the root's input is its `out`.
#include "tutti/comm/plans/simulator/goal.h"

namespace tutti {

Goal goal_of(Kind kind, const Shape& shape) {
  const Verb& v = verb(kind);
  const std::size_t part = shape.count * shape.element, whole = part * std::size_t(shape.size);
  const std::size_t own = part * std::size_t(shape.rank);
  const auto is_one = [&](Verb::Ranks ranks, int rank) {
    return ranks == Verb::Ranks::kAll || (ranks == Verb::Ranks::kRoot && rank == shape.root);
  };
  Goal goal;
  if (v.combine == Verb::Combine::kNothing || is_point_to_point(kind)) return goal;
  const int added = is_reduction(kind) ? summands(kind, shape.rank, shape.size) : 1;
  const bool gives = is_one(v.gives, shape.rank), gets = is_one(v.gets, shape.rank) && added > 0;
  const bool is_one_buffer = v.in == Verb::Buffer::kNone;
  if (gives && !is_one_buffer) goal.in_bytes = gives_parts(kind) ? whole : part;
  if (gets) goal.out_bytes = gets_parts(kind) ? whole : part;
  goal.overlap = shape.in_place && goal.in_bytes > 0 && goal.out_bytes > 0;
  if (goal.overlap && gives_parts(kind) != gets_parts(kind)) (gets_parts(kind) ? goal.in_at : goal.out_at) = own;
  if (gives)
    goal.before = {{is_one_buffer ? Range{Area::kOut, 0, part} : Range{Area::kIn, 0, goal.in_bytes}, shape.rank, 0}};
  const std::size_t position = gives_parts(kind) ? own : 0;
  if (gets && is_reduction(kind)) goal.after = {{{Area::kOut, 0, part}, 0, position, added}};
  for (int from = 0; from < shape.size && gets && !is_reduction(kind); ++from)
    if (is_one(v.gives, from))
      goal.after.push_back({{Area::kOut, gets_parts(kind) ? std::size_t(from) * part : 0, part}, from, position});
  if (goal.overlap && goal.out_at == own && gives_parts(kind) && !gets_parts(kind)) {  // the other parts stay
    goal.after.push_back({{Area::kIn, 0, own}, shape.rank, 0});
    goal.after.push_back({{Area::kIn, own + part, whole - own - part}, shape.rank, own + part});
  }
  // Inputs are only read.
  if (!goal.overlap && !is_one_buffer) goal.after.insert(goal.after.end(), goal.before.begin(), goal.before.end());
  return goal;
}

}  // namespace tutti
