// The verbs as comm/request.h has them. Positions count in a rank's own input: in an all_to_all the part that rank r
// has for rank q is at position q * part, in a broadcast the root's input is its `out`.
#include "tutti/planning/simulator/goal.h"

namespace tutti {

Goal goal_of(Kind kind, const Shape& shape) {
  const std::size_t part = shape.count * shape.element, whole = part * std::size_t(shape.size);
  const std::size_t own = part * std::size_t(shape.rank);
  const bool root = shape.rank == shape.root;
  const Range in{Area::kIn, 0, part}, all_in{Area::kIn, 0, whole}, out{Area::kOut, 0, part};
  Goal goal;
  const auto gathered = [&] {
    for (int from = 0; from < shape.size; ++from)
      goal.after.push_back({{Area::kOut, std::size_t(from) * part, part}, from, 0});
  };
  switch (kind) {
    case Kind::kBarrier:
      return goal;
    case Kind::kGatherV:  // without splits they are as the even verbs
      return goal_of(Kind::kGather, shape);
    case Kind::kAllGatherV:
      return goal_of(Kind::kAllGather, shape);
    case Kind::kScatterV:
      return goal_of(Kind::kScatter, shape);
    case Kind::kReduceScatterV:
      return goal_of(Kind::kReduceScatter, shape);
    case Kind::kSend:
    case Kind::kRecv:
      return goal;
    case Kind::kBroadcast:
      goal.out_bytes = part;
      if (root) goal.before = {{out, shape.root, 0}};
      goal.after = {{out, shape.root, 0}};
      return goal;
    case Kind::kReduce:
      goal.in_bytes = part;
      goal.out_bytes = root ? part : 0;
      goal.overlap = root && shape.in_place;
      goal.before = {{in, shape.rank, 0}};
      if (root) goal.after = {{out, Goal::kAll, 0}};
      break;
    case Kind::kAllReduce:
      goal.in_bytes = goal.out_bytes = part;
      goal.overlap = shape.in_place;
      goal.before = {{in, shape.rank, 0}};
      goal.after = {{out, Goal::kAll, 0}};
      break;
    case Kind::kGather:
    case Kind::kAllGather: {
      const bool takes = root || kind == Kind::kAllGather;
      goal.in_bytes = part;
      goal.out_bytes = takes ? whole : 0;
      goal.overlap = takes && shape.in_place;
      goal.in_at = goal.overlap ? own : 0;
      goal.before = {{in, shape.rank, 0}};
      if (takes) gathered();
      break;
    }
    case Kind::kScatter:
      goal.in_bytes = root ? whole : 0;
      goal.out_bytes = part;
      goal.overlap = root && shape.in_place;
      goal.out_at = goal.overlap ? own : 0;
      if (root) goal.before = {{all_in, shape.rank, 0}};
      goal.after = {{out, shape.root, own}};
      break;
    case Kind::kReduceScatter:
      goal.in_bytes = whole;
      goal.out_bytes = part;
      goal.overlap = shape.in_place;
      goal.out_at = goal.overlap ? own : 0;
      goal.before = {{all_in, shape.rank, 0}};
      goal.after = {{out, Goal::kAll, own}};
      if (goal.overlap) {  // the other parts stay as they are
        goal.after.push_back({{Area::kIn, 0, own}, shape.rank, 0});
        goal.after.push_back({{Area::kIn, own + part, whole - own - part}, shape.rank, own + part});
      }
      break;
    case Kind::kAllToAll:
      goal.in_bytes = goal.out_bytes = whole;
      goal.overlap = shape.in_place;
      goal.before = {{all_in, shape.rank, 0}};
      for (int from = 0; from < shape.size; ++from)
        goal.after.push_back({{Area::kOut, std::size_t(from) * part, part}, from, own});
      break;
  }
  // Inputs are only read.
  if (!goal.overlap) goal.after.insert(goal.after.end(), goal.before.begin(), goal.before.end());
  return goal;
}

}  // namespace tutti
