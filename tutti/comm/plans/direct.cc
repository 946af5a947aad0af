// Algorithms in which each rank exchanges directly with each peer, or with the root.
#include <algorithm>

#include "tutti/comm/plans/algorithms.h"

namespace tutti::comm {

// Every rank sends its part to the root, which receives the parts in any order.
Plan gather_direct(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  if (shape.rank != shape.root) {
    plan.send(shape.root, {Area::kIn, 0, shape.count * shape.element});
    return std::move(plan).build();
  }
  const auto parts = parts_of(Area::kOut, shape, shape.out_splits);
  for (int hop = 1; hop < shape.size; ++hop) {
    const int peer = (shape.root + hop) % shape.size;
    plan.recv(peer, parts[std::size_t(peer)]);
  }
  const Range own = parts[std::size_t(shape.root)];
  if (!shape.in_place) plan.copy({Area::kIn, 0, own.bytes}, own);
  return std::move(plan).build();
}

// The root sends each rank its part, all at once.
Plan scatter_direct(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDirect);
  if (shape.rank != shape.root) {
    plan.recv(shape.root, {Area::kOut, 0, shape.count * shape.element});
    return std::move(plan).build();
  }
  const auto parts = parts_of(Area::kIn, shape, shape.in_splits);
  for (int hop = 1; hop < shape.size; ++hop) {
    const int peer = (shape.root + hop) % shape.size;
    plan.send(peer, parts[std::size_t(peer)]);
  }
  const Range own = parts[std::size_t(shape.root)];
  if (!shape.in_place) plan.copy(own, {Area::kOut, 0, own.bytes});
  return std::move(plan).build();
}

// In round k each rank sends to the rank k after it and receives from the rank k before it, so that no rank is the
// target of all others at once. The rounds overlap, because their bytes do not conflict.
//
// In place, received parts overwrite the parts to send, so those are first copied to scratch memory. The copies go by
// rows: one segment of every part, then the next segment of every part. Scratch memory holds two rows.

namespace {

constexpr std::size_t kRow = 4 << 20;  // bytes of one row in scratch memory

Plan in_place(const Shape& shape) {
  PlanBuilder plan(Algorithm::kPairwise);
  const int n = shape.size;
  const auto parts = parts_of(Area::kOut, shape, {});
  if (n == 1) return std::move(plan).build();
  const std::size_t fitting = std::max(shape.element, kRow / std::size_t(n - 1));
  std::vector<std::vector<Range>> segments;
  for (const Range& part : parts)
    segments.push_back(segments_of(part, shape.element, std::min(shape.segment, fitting)));
  const std::size_t rows = segments[0].size();
  std::vector<Range> aside;
  for (std::size_t i = 0; i < std::min<std::size_t>(rows, 2) * std::size_t(n - 1); ++i)
    aside.push_back(plan.scratch(segments[0][0].bytes));
  for (std::size_t row = 0; row < rows; ++row) {
    const auto leaving = [&](int hop) {
      Range range = aside[row % 2 * std::size_t(n - 1) + std::size_t(hop - 1)];
      range.bytes = segments[0][row].bytes;
      return range;
    };
    for (int hop = 1; hop < n; ++hop) plan.copy(segments[std::size_t((shape.rank + hop) % n)][row], leaving(hop));
    for (int hop = 1; hop < n; ++hop) {
      plan.send((shape.rank + hop) % n, leaving(hop));
      const int from = (shape.rank + n - hop) % n;
      plan.recv(from, segments[std::size_t(from)][row]);
    }
  }
  return std::move(plan).build();
}

}  // namespace

Plan all_to_all_pairwise(const Shape& shape) {
  if (shape.in_place) return in_place(shape);
  PlanBuilder plan(Algorithm::kPairwise);
  const int n = shape.size;
  const auto in = parts_of(Area::kIn, shape, shape.in_splits), out = parts_of(Area::kOut, shape, shape.out_splits);
  for (int hop = 1; hop < n; ++hop) {
    const int to = (shape.rank + hop) % n, from = (shape.rank + n - hop) % n;
    plan.send(to, in[to]);
    plan.recv(from, out[from]);
  }
  plan.copy(in[shape.rank], out[shape.rank]);
  return std::move(plan).build();
}

// In round k each rank signals the rank 2^k after it, once it has received the signal of the round before. The signal
// is one byte in scratch memory, so the order of the rounds follows from byte dependencies as in every other plan.
Plan barrier_dissemination(const Shape& shape) {
  PlanBuilder plan(Algorithm::kDissemination);
  const Range token = plan.scratch(shape.size > 1 ? 1 : 0);
  for (int distance = 1; distance < shape.size; distance *= 2) {
    plan.send((shape.rank + distance) % shape.size, token);
    plan.recv((shape.rank + shape.size - distance) % shape.size, token);
  }
  return std::move(plan).build();
}

}  // namespace tutti::comm
