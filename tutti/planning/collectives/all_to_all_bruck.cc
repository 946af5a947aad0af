// Bruck's index algorithm [Bruck 1997], for small parts: ceil(log2 n) messages of half the parts each instead of n-1 of
// one part. A part that has i ranks to go travels by the set bits of i: in the round of bit b every rank sends all
// parts with that bit to the rank b after it, and the part that comes instead has the same way behind and before it.
//
// A message must be one range, so a round's parts are copied side by side first; what comes is left where it came, and
// `where` remembers. The result is written at the very end, for in place it lies over the input.
#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/collectives/phases.h"

namespace tutti {

Plan all_to_all_bruck(const Shape& shape) {
  PlanBuilder plan(Algorithm::kBruck);
  const int n = shape.size;
  const std::size_t part = shape.count * shape.element;
  const Parts in = parts_of(shape.in_place ? Area::kOut : Area::kIn, shape, {}), out = parts_of(Area::kOut, shape, {});
  Parts where = rotated(in, shape.rank);  // by the distance that a part has to go in all
  for (int bit = 1; bit < n; bit *= 2) {
    std::vector<int> travel;
    for (int distance = bit; distance < n; ++distance) {
      if (distance & bit) travel.push_back(distance);
    }
    const Range leaving = plan.scratch(travel.size() * part), coming = plan.scratch(travel.size() * part);
    for (std::size_t i = 0; i < travel.size(); ++i) {
      plan.copy(where[travel[i]], {Area::kScratch, leaving.offset + i * part, part});
      where[travel[i]] = {Area::kScratch, coming.offset + i * part, part};
    }
    send(plan, (shape.rank + bit) % n, {leaving}, pieces_of(shape));
    recv(plan, (shape.rank + n - bit) % n, {coming}, pieces_of(shape));
  }
  for (int distance = 0; distance < n; ++distance) plan.copy(where[distance], out[(shape.rank + n - distance) % n]);
  return std::move(plan).build();
}

}  // namespace tutti
