#pragma once
// Which gradients travel together, and where each lies while it is reduced: in place, as a range of its own, or packed
// with others into one flat range of its bucket. Pure arithmetic, the same on every rank.
#include <cstddef>
#include <span>
#include <vector>

namespace tutti {

struct BucketItem {
  std::size_t bytes = 0;
  int kind = 0;  // items of different kinds (element type, device) never share a bucket
};

// PyTorch's compute_bucket_assignment_by_size, on sizes instead of tensors: goes through the items in order and gathers
// those of a kind; the item that brings a bucket to its limit or above closes it (so a bucket may overshoot by one
// item). `limits` holds the limit in bytes of the first, second, ... bucket of each kind; the last one repeats. Returns
// indices of items, the buckets ordered by their smallest index. `limits` must not be empty.
std::vector<std::vector<std::size_t>> assign_buckets(std::span<const BucketItem> items,
                                                     std::span<const std::size_t> limits);

// What the plan knows of a gradient.
struct GradientShape {
  std::size_t count = 0;          // elements
  std::size_t element_bytes = 4;  // of each
  int kind = 0;                   // gradients of different kinds (element type, device) never share a bucket
};

struct BucketLimits {
  std::size_t first_bytes = std::size_t(1) << 20;  // of the first bucket of each kind; small, so that it starts early
  std::size_t bytes = std::size_t(25) << 20;       // of those after it
  std::size_t in_place_bytes = std::size_t(256) << 10;  // gradients from this size on are not packed
};

struct PlannedBucket {
  static constexpr std::size_t kInPlace = std::size_t(-1);
  struct Slot {
    std::size_t gradient = 0;       // its index
    std::size_t offset = kInPlace;  // in elements of the flat range; each begins on a cache line
    bool in_place() const { return offset == kInPlace; }
  };
  std::vector<Slot> slots;
  std::size_t bytes = 0;         // of the gradients, without the gaps
  std::size_t packed_count = 0;  // elements of the flat range, with the gaps; 0: all are in place
};

// Buckets in the order in which they are launched. `order` names the gradients that take part, in the order in which
// they are expected; those of a kind that come one after another share a bucket up to its limit, which the last one may
// overshoot.
std::vector<PlannedBucket> plan_buckets(std::span<const GradientShape> gradients, std::span<const std::size_t> order,
                                        const BucketLimits& limits);

}  // namespace tutti
