// Ring all-reduce. The vector is cut into n chunks. In hop k of the reduce-scatter each rank sends chunk (rank - k) to
// the next rank and adds its own values to chunk (rank - k - 1), which the previous rank sends: after n-1 hops rank r
// owns the sum of chunk r + 1. In the n-1 hops of the all-gather the finished chunks travel once around. Chunks are cut
// into segments that go round in a wave: a rank sends segment s of hop k when segment s + kAllReduceLag of hop k-1 has
// left, so that a segment is passed on while it is still in the cache, and the next ones are on their way meanwhile.
// The sum of a chunk begins at the rank of the chunk's number and follows the ring.
#include <algorithm>

#include "tutti/planning/collectives/algorithms.h"

namespace tutti {
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
  // By chunk, of the input and of the output.
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

}  // namespace tutti
