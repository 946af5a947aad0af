#pragma once
// Which gradients travel together: PyTorch's compute_bucket_assignment_by_size, on sizes instead of tensors.
#include <cstddef>
#include <span>
#include <vector>

namespace tutti {

struct BucketItem {
  std::size_t bytes = 0;
  int kind = 0;  // items of different kinds (element type, device) never share a bucket
};

// Goes through the items in order and gathers those of a kind; the item that brings a bucket to its limit or above
// closes it (so a bucket may overshoot by one item). `limits` holds the limit in bytes of the first, second, ... bucket
// of each kind; the last one repeats. Returns indices of items, the buckets ordered by their smallest index. `limits`
// must not be empty.
std::vector<std::vector<std::size_t>> assign_buckets(std::span<const BucketItem> items,
                                                     std::span<const std::size_t> limits);

}  // namespace tutti
