#include "tutti/planning/buckets.h"

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

}  // namespace tutti
