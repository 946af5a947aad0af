#include "tutti/planning/bucket_plan.h"

#include <algorithm>

#include "tutti/planning/buckets.h"

namespace tutti {
namespace {

constexpr std::size_t kAlignment = 64;  // of every packed gradient, in bytes

std::size_t aligned(std::size_t count, std::size_t element_bytes) {
  const std::size_t granule = std::max<std::size_t>(1, kAlignment / element_bytes);
  return (count + granule - 1) / granule * granule;
}

}  // namespace

std::vector<PlannedBucket> plan_buckets(std::span<const GradientShape> gradients, std::span<const std::size_t> order,
                                        const BucketLimits& limits) {
  std::vector<BucketItem> items;
  for (const auto index : order)
    items.push_back({.bytes = gradients[index].count * gradients[index].element_bytes, .kind = gradients[index].kind});
  const std::size_t row[] = {limits.first_bytes, limits.bytes};
  std::vector<PlannedBucket> buckets;
  for (const auto& places : assign_buckets(items, row)) {
    PlannedBucket& bucket = buckets.emplace_back();
    for (const auto place : places) {
      const auto& shape = gradients[order[place]];
      auto& slot = bucket.slots.emplace_back(PlannedBucket::Slot{.gradient = order[place]});
      bucket.bytes += items[place].bytes;
      if (items[place].bytes >= limits.in_place_bytes) continue;
      slot.offset = bucket.packed_count;
      bucket.packed_count += aligned(shape.count, shape.element_bytes);
    }
  }
  return buckets;
}

}  // namespace tutti
