#include "tutti/parallel/data_parallel/buckets.h"

#include <algorithm>
#include <map>

#include "tutti/base/error.h"

namespace tutti {
namespace {

struct OpenBucket {
  std::vector<std::size_t> indices;
  std::size_t bytes = 0;
  std::size_t closed = 0;  // buckets of this kind that are already full
};

constexpr std::size_t kAlignment = 64;  // of every packed gradient, in bytes

std::size_t aligned(std::size_t count, std::size_t element_bytes) {
  const std::size_t granule = std::max<std::size_t>(1, kAlignment / element_bytes);
  return (count + granule - 1) / granule * granule;
}

}  // namespace

std::vector<std::vector<std::size_t>> assign_buckets(std::span<const BucketItem> items,
                                                     std::span<const std::size_t> limits) {
  TUTTI_REQUIRE(!limits.empty(),
                "assign_buckets: no limit was given; expected the size in bytes of at least one bucket");
  std::vector<std::vector<std::size_t>> buckets;
  std::map<int, OpenBucket> open;
  for (std::size_t i = 0; i < items.size(); ++i) {
    auto& bucket = open[items[i].kind];
    bucket.indices.push_back(i);
    bucket.bytes += items[i].bytes;
    if (bucket.bytes >= limits[std::min(bucket.closed, limits.size() - 1)]) {
      buckets.push_back(std::move(bucket.indices));
      bucket = OpenBucket{.closed = bucket.closed + 1};
    }
  }
  for (auto& [kind, bucket] : open) {
    if (!bucket.indices.empty()) buckets.push_back(std::move(bucket.indices));
  }
  std::sort(buckets.begin(), buckets.end(), [](const auto& a, const auto& b) { return a.front() < b.front(); });
  return buckets;
}

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
