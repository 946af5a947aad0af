// Algorithms on a ring of all ranks.
#include <algorithm>

#include "tutti/comm/plans/algorithms.h"

namespace tutti::comm {

// Ring all-reduce. The vector is cut into n chunks. In hop k of the reduce-scatter each rank sends chunk (rank - k) to
// the next rank. It adds its own values to chunk (rank - k - 1), which the previous rank sends. After n-1 hops rank r
// owns the sum of chunk r + 1. In the n-1 hops of the all-gather the finished chunks go once around the ring.
//
// Chunks are cut into segments, which are pipelined. A rank sends segment s of hop k after segment s + kAllReduceLag of
// hop k-1. So it passes on a segment while the segment is still in the cache, and the next segments are in flight
// meanwhile. The sum of chunk c starts at rank c and follows the ring.

namespace {

constexpr std::size_t kAllReduceLag = 2;  // segments

}  // namespace

Plan all_reduce_ring(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRing);
  const int n = shape.size, next = (shape.rank + 1) % n, previous = (shape.rank + n - 1) % n;
  const std::size_t bytes = shape.count * shape.element;
  const Range out{Area::kOut, 0, bytes}, in{shape.in_place ? Area::kOut : Area::kIn, 0, bytes};
  if (n == 1) {
    plan.copy(in, out);
    return std::move(plan).build();
  }
  // The segments of each chunk: own in the input, sum in the output.
  std::vector<std::vector<Range>> own(n), sum(n);
  std::size_t most = 0;
  for (int chunk = 0; chunk < n; ++chunk) {
    own[chunk] = segments_of(part_of(in, shape.element, n, chunk), shape.element, shape.segment);
    sum[chunk] = segments_of(part_of(out, shape.element, n, chunk), shape.element, shape.segment);
    most = std::max(most, own[chunk].size());
  }
  const std::size_t hops = 2 * (std::size_t(n) - 1);
  const auto step = [&](std::size_t hop, std::size_t segment) {
    const std::size_t sent = (std::size_t(shape.rank) + 2 * n - hop) % n, came = (sent + n - 1) % n;
    if (segment < sum[sent].size()) plan.send(next, (hop == 0 ? own : sum)[sent][segment]);
    if (segment >= sum[came].size()) return;
    if (hop < hops / 2)
      plan.recv_reduce(previous, own[came][segment], sum[came][segment]);
    else
      plan.recv(previous, sum[came][segment]);
  };
  for (std::size_t time = 0; time < most + kAllReduceLag * (hops - 1); ++time) {
    const std::size_t first = time < most ? 0 : (time - most) / kAllReduceLag + 1;
    for (std::size_t hop = first; hop < hops && kAllReduceLag * hop <= time; ++hop)
      step(hop, time - kAllReduceLag * hop);
  }
  return std::move(plan).build();
}

// The first half of the ring all-reduce, shifted so that rank r ends with part r. The sum of a part starts at the rank
// after its owner and ends at the owner. Segments are pipelined as in the ring all-reduce.
//
// The plan must not change `in`, so partial sums are in scratch memory, whose size must not grow with the parts. The
// pipeline therefore takes kBlock segments of every part at a time. There is room for two blocks. Each block has room
// for the sums of two hops: the one being sent and the next one being added.

namespace {

constexpr std::size_t kReduceScatterLag = 2, kBlock = 8;  // segments

}  // namespace

Plan reduce_scatter_ring(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRing);
  const int n = shape.size, next = (shape.rank + 1) % n, previous = (shape.rank + n - 1) % n;
  const auto parts = parts_of(Area::kIn, shape, shape.in_splits);
  const Range out{Area::kOut, 0, parts[std::size_t(shape.rank)].bytes};
  if (n == 1 && !shape.in_place) plan.copy(parts[0], out);
  if (n == 1) return std::move(plan).build();
  std::vector<std::vector<Range>> added;  // by part
  std::size_t most = 0, largest = 0;      // most segments of a part; bytes of the largest segment
  for (const Range& part : parts) {
    added.push_back(segments_of(part, shape.element, shape.segment));
    most = std::max(most, added.back().size());
    largest = std::max(largest, added.back().front().bytes);
  }
  const auto results = segments_of(out, shape.element, shape.segment);
  const std::size_t hops = std::size_t(n) - 1, rooms = std::min(kBlock, most);
  std::vector<Range> scratch;
  if (hops > 1)
    for (std::size_t room = 0; room < 4 * rooms; ++room) scratch.push_back(plan.scratch(largest));
  // Where the sum of a segment that arrives in this hop is stored.
  const auto sum = [&](std::size_t hop, std::size_t segment, std::size_t bytes) {
    if (hop == hops - 1) return results[segment];
    Range range = scratch[(segment / kBlock % 2 * 2 + hop % 2) * rooms + segment % kBlock];
    range.bytes = bytes;
    return range;
  };
  const auto step = [&](std::size_t hop, std::size_t segment) {
    const std::size_t sent = (std::size_t(shape.rank) + 2 * std::size_t(n) - 1 - hop) % std::size_t(n);
    const std::size_t came = (sent + std::size_t(n) - 1) % std::size_t(n);
    if (segment < added[sent].size()) {
      const Range& own = added[sent][segment];
      plan.send(next, hop == 0 ? own : sum(hop - 1, segment, own.bytes));
    }
    if (segment < added[came].size()) {
      const Range& own = added[came][segment];
      plan.recv_reduce(previous, own, sum(hop, segment, own.bytes));
    }
  };
  for (std::size_t block = 0; block < most; block += kBlock) {
    const std::size_t length = std::min(kBlock, most - block);
    for (std::size_t time = 0; time < length + kReduceScatterLag * (hops - 1); ++time) {
      const std::size_t first = time < length ? 0 : (time - length) / kReduceScatterLag + 1;
      for (std::size_t hop = first; hop < hops && kReduceScatterLag * hop <= time; ++hop)
        step(hop, block + time - kReduceScatterLag * hop);
    }
  }
  return std::move(plan).build();
}

// Every rank's part, even or uneven, goes once around the ring by segment. n-1 hops; each link carries n-1 parts.
Plan all_gather_ring(const Shape& shape) {
  PlanBuilder plan(Algorithm::kRing);
  const int n = shape.size, next = (shape.rank + 1) % n, previous = (shape.rank + n - 1) % n;
  const auto parts = parts_of(Area::kOut, shape, shape.out_splits);
  const auto part_from = [&](int rank) { return parts[std::size_t((rank + n) % n)]; };
  const Range own = part_from(shape.rank);
  if (!shape.in_place) plan.copy({Area::kIn, 0, own.bytes}, own);
  for (int hop = 0; hop < n - 1; ++hop) {
    for (const Range& sent : segments_of(part_from(shape.rank - hop), shape.element, shape.segment))
      plan.send(next, sent);
    for (const Range& come : segments_of(part_from(shape.rank - hop - 1), shape.element, shape.segment))
      plan.recv(previous, come);
  }
  return std::move(plan).build();
}

}  // namespace tutti::comm
