// Scans. In a scan rank r gets the sum of the inputs of ranks 0 to r, in an exscan of ranks 0 to r-1. Rank 0 of an
// exscan gets nothing.
#include "tutti/comm/plans/algorithms.h"
#include "tutti/comm/plans/phases.h"

namespace tutti::comm {
namespace {

Range whole(Area area, const Shape& shape) { return {area, 0, shape.count * shape.element}; }

// Rank 0 of an exscan has no output.
Area input_of(const Shape& shape, bool has_output) { return shape.in_place && has_output ? Area::kOut : Area::kIn; }

// Hillis and Steele's scan. In the round of distance d a rank adds the sum that the rank d before it has, which covers
// that rank and the d-1 ranks before it. Returns the range that holds the sum.
Range scan_by_doubling(PlanBuilder& plan, const Shape& shape, bool has_output) {
  Range sum = whole(input_of(shape, has_output), shape);
  Range rooms[] = {plan.scratch(sum.bytes), plan.scratch(sum.bytes)};  // two: a sum must stay until it is sent
  int room = 0;
  for (int distance = 1; distance < shape.size; distance *= 2) {
    plan.next_round();
    if (shape.rank + distance < shape.size) plan.send(shape.rank + distance, sum);
    if (shape.rank < distance) continue;
    plan.recv_reduce(shape.rank - distance, sum, rooms[room]);
    sum = rooms[room];
    room = 1 - room;
  }
  return sum;
}

}  // namespace

Plan scan_recursive_doubling(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRecursiveDoubling);
  plan.copy(scan_by_doubling(plan, shape, true), whole(Area::kOut, shape));
  return std::move(plan).build();
}

// A scan, followed by a shift of the results by one rank.
Plan exscan_recursive_doubling(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRecursiveDoubling);
  const Range sum = scan_by_doubling(plan, shape, shape.rank > 0);
  plan.next_round();
  if (shape.rank + 1 < shape.size) plan.send(shape.rank + 1, sum);
  if (shape.rank > 0) plan.recv(shape.rank - 1, whole(Area::kOut, shape));
  return std::move(plan).build();
}

// Each rank adds its input to the sum of the ranks before it and passes the sum on, segment by segment. The additions
// are in rank order.
Plan scan_chain(const Shape& shape) {
  PlanBuilder plan(Algorithm::kChain);
  const Area input = shape.in_place ? Area::kOut : Area::kIn;
  for (const Range& out : segments_of(whole(Area::kOut, shape), shape.element, shape.segment)) {
    const Range in{input, out.offset, out.bytes};
    if (shape.rank == 0)
      plan.copy(in, out);
    else
      plan.recv_reduce(shape.rank - 1, in, out);
    if (shape.rank + 1 < shape.size) plan.send(shape.rank + 1, out);
  }
  return std::move(plan).build();
}

// A received segment is the result. A rank passes on the result plus its own input, from two segments of scratch
// memory.
Plan exscan_chain(const Shape& shape) {
  PlanBuilder plan(Algorithm::kChain);
  const Area input = input_of(shape, shape.rank > 0);
  const auto segments = segments_of(whole(Area::kOut, shape), shape.element, shape.segment);
  const bool is_last = shape.rank + 1 == shape.size, relays = shape.rank > 0 && !is_last;
  const std::size_t largest = relays ? segments.front().bytes : 0;
  const Range rooms[] = {plan.scratch(largest), plan.scratch(largest)};
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const Range out = segments[i], in{input, out.offset, out.bytes};
    if (!relays) {
      if (shape.rank > 0) plan.recv(shape.rank - 1, out);
      if (!is_last) plan.send(shape.rank + 1, in);
      continue;
    }
    const Range sum{Area::kScratch, rooms[i % 2].offset, out.bytes};
    plan.copy(in, sum);
    plan.recv(shape.rank - 1, out);
    plan.reduce(out, sum);
    plan.send(shape.rank + 1, sum);
  }
  return std::move(plan).build();
}

}  // namespace tutti::comm
