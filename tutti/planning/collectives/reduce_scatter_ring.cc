// The first half of the ring all-reduce, shifted so that rank r ends with part r: the sum of a part begins at the rank
// after its owner and ends with the owner. Segments go round in a wave, as there.
//
// `in` is not ours to change, so a sum on its way lives in scratch memory, which must not grow with the parts: the wave
// takes kBlock segments of every part at a time, and there is room for two blocks, and in each for the sums of two
// hops: of one that is being sent, and of the next that is being added.
#include <algorithm>

#include "tutti/planning/collectives/algorithms.h"

namespace tutti {
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
  std::size_t most = 0, largest = 0;      // segments; bytes of one
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
  // Where the sum of a segment is that came in this hop.
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

}  // namespace tutti
