// Mesh: every rank exchanges with every other rank at once. One hop, and every byte crosses one wire. This suits a
// switch that keeps all ports busy, as long as n messages cost less than the hops that they save.
//
// Each rank sends to the member after it first, so that no rank is the first target of all others. The sum of a part
// starts with its owner's values and adds the other members in descending order, modulo n. It is added by segments:
// each segment from all peers before the next one, so that no stream has to hold more than the bytes in flight.
#include "tutti/comm/plans/algorithms.h"
#include "tutti/comm/plans/phases.h"

namespace tutti::comm {

void reduce_scatter_mesh(PlanBuilder& plan, const Members& members, const Parts& in, const Range& sum,
                         const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  if (n == 1) plan.copy(in[me], sum);
  for (int hop = 1; hop < n; ++hop) send(plan, members.at(me + hop), {in[(me + hop) % n]}, pieces);
  const auto own = segments_of(in[me], pieces.element, pieces.segment);
  const auto sums = segments_of(sum, pieces.element, pieces.segment);
  for (std::size_t i = 0; i < sums.size(); ++i) {
    for (int hop = 1; hop < n; ++hop) plan.recv_reduce(members.at(me - hop), hop == 1 ? own[i] : sums[i], sums[i]);
  }
}

void all_gather_mesh(PlanBuilder& plan, const Members& members, const ScatteredParts& parts, const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  for (int hop = 1; hop < n; ++hop) {
    send(plan, members.at(me + hop), joined(parts, me, 1), pieces);
    recv(plan, members.at(me - hop), joined(parts, me + n - hop, 1), pieces);
  }
}

void all_gather_mesh(PlanBuilder& plan, const Members& members, const Parts& parts, const Pieces& pieces) {
  const int n = members.size(), me = members.place;
  for (int hop = 1; hop < n; ++hop) {
    send(plan, members.at(me + hop), {parts[me]}, pieces);
    recv(plan, members.at(me - hop), {parts[(me + n - hop) % n]}, pieces);
  }
}

// Every rank sends its part to all other ranks at once.
Plan all_gather_mesh(const Shape& shape) {
  PlanBuilder plan(Algorithm::kMesh);
  const Parts parts = parts_of(Area::kOut, shape, shape.out_splits);
  if (!shape.in_place) plan.copy({Area::kIn, 0, parts[shape.rank].bytes}, parts[shape.rank]);
  all_gather_mesh(plan, everybody(shape), parts, pieces_of(shape));
  return std::move(plan).build();
}

// Every rank receives its part from all peers at once.
Plan reduce_scatter_mesh(const Shape& shape) {
  PlanBuilder plan(Algorithm::kMesh);
  const Parts in = parts_of(Area::kIn, shape, shape.in_splits);
  reduce_scatter_mesh(plan, everybody(shape), in, {Area::kOut, 0, in[shape.rank].bytes}, pieces_of(shape));
  return std::move(plan).build();
}

// Each rank owns one nth of the vector. It receives this part from all peers at once, adds, and sends the sum to all.
Plan all_reduce_mesh(const Shape& shape) {
  PlanBuilder plan(Algorithm::kMesh);
  const std::size_t bytes = shape.count * shape.element;
  const Members all = everybody(shape);
  const Parts in = even_parts({shape.in_place ? Area::kOut : Area::kIn, 0, bytes}, shape.element, shape.size);
  const Parts out = even_parts({Area::kOut, 0, bytes}, shape.element, shape.size);
  reduce_scatter_mesh(plan, all, in, out[shape.rank], pieces_of(shape));
  all_gather_mesh(plan, all, out, pieces_of(shape));
  return std::move(plan).build();
}

}  // namespace tutti::comm
