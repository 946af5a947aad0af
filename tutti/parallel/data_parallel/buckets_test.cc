// The tables of PyTorch's ComputeBucketAssignmentTest (test/distributed/test_c10d_common.py), and of Megatron-LM's
// test_bucket_sizes (tests/unit_tests/distributed/test_param_and_grad_buffer.py).
#include "tutti/parallel/data_parallel/buckets.h"

#include <gmock/gmock.h>

#include <set>

#include "tutti/base/error.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using Buckets = std::vector<std::vector<std::size_t>>;
constexpr int kFloat = 0, kDouble = 1;

BucketItem floats(std::size_t count) { return {count * 4, kFloat}; }
BucketItem doubles(std::size_t count) { return {count * 8, kDouble}; }
Buckets assign(std::vector<BucketItem> items, std::vector<std::size_t> limits) { return assign_buckets(items, limits); }

TEST(Buckets, OneLimitOneKind) {
  EXPECT_EQ(assign({floats(100), floats(200), floats(100), floats(50)}, {400}), (Buckets{{0}, {1}, {2}, {3}}));
}

TEST(Buckets, OneLimitTwoKinds) {
  EXPECT_EQ(assign({floats(50), doubles(25), floats(50), doubles(25), floats(50), doubles(25)}, {400}),
            (Buckets{{0, 2}, {1, 3}, {4}, {5}}));
}

TEST(Buckets, SeveralLimitsOneKind) {
  EXPECT_EQ(assign({floats(10), floats(10), floats(10), floats(10)}, {40, 80}), (Buckets{{0}, {1, 2}, {3}}));
}

TEST(Buckets, EachKindHasItsOwnRowOfLimits) {
  EXPECT_EQ(assign({floats(50), doubles(25), floats(50), doubles(25), floats(50), doubles(25)}, {200, 400}),
            (Buckets{{0}, {1}, {2, 4}, {3, 5}}));
}

// Elements in each bucket of ten layers of 95 x 95, last layer first. (With a distributed optimizer Megatron-LM pads
// what a bucket holds; ours pads nothing.)
std::vector<std::size_t> of_ten_layers(bool bias, std::size_t limit) {
  std::vector<BucketItem> items;
  for (int layer = 0; layer < 10; ++layer) {
    if (bias) items.push_back(floats(95));
    items.push_back(floats(95 * 95));
  }
  std::vector<std::size_t> sizes;
  for (const auto& bucket : assign(items, {limit * 4})) {
    std::size_t bytes = 0;
    for (const std::size_t item : bucket) bytes += items[item].bytes;
    sizes.push_back(bytes / 4);
  }
  return sizes;
}

TEST(Buckets, MegatronsTenLayers) {
  using Sizes = std::vector<std::size_t>;
  for (const std::size_t limit : {9'000u, 9'025u}) EXPECT_EQ(of_ten_layers(false, limit), Sizes(10, 9'025)) << limit;
  for (const std::size_t limit : {9'050u, 18'000u, 18'050u})
    EXPECT_EQ(of_ten_layers(false, limit), Sizes(5, 18'050)) << limit;
  EXPECT_EQ(of_ten_layers(false, 20'000), (Sizes{27'075, 27'075, 27'075, 9'025}));
  EXPECT_EQ(of_ten_layers(false, 1'000'000), Sizes{90'250});
  for (const std::size_t limit : {9'000u, 9'025u, 9'050u})
    EXPECT_EQ(of_ten_layers(true, limit), Sizes(10, 9'120)) << limit;
  for (const std::size_t limit : {18'000u, 18'050u}) EXPECT_EQ(of_ten_layers(true, limit), Sizes(5, 18'240)) << limit;
  EXPECT_EQ(of_ten_layers(true, 20'000), (Sizes{27'360, 27'360, 27'360, 9'120}));
  EXPECT_EQ(of_ten_layers(true, 1'000'000), Sizes{91'200});
}

TEST(Buckets, Nothing) {
  EXPECT_EQ(assign({}, {400}), Buckets{});
  EXPECT_THROW(assign({floats(1)}, {}), Exception);
}

constexpr auto kInPlace = PlannedBucket::kInPlace;

std::vector<std::vector<std::size_t>> gradients_of(const std::vector<PlannedBucket>& buckets) {
  std::vector<std::vector<std::size_t>> all;
  for (const auto& bucket : buckets) {
    auto& one = all.emplace_back();
    for (const auto& slot : bucket.slots) one.push_back(slot.gradient);
  }
  return all;
}

TEST(BucketPlan, FollowsTheOrderGivenAndTheLimits) {
  const std::vector<GradientShape> shapes(5, {.count = 100});
  const std::vector<std::size_t> order = {4, 2, 3, 0, 1};
  const auto buckets = plan_buckets(shapes, order, {.first_bytes = 400, .bytes = 800});
  EXPECT_EQ(gradients_of(buckets), (std::vector<std::vector<std::size_t>>{{4}, {2, 3}, {0, 1}}));
  EXPECT_EQ(buckets[1].bytes, 800u);
}

TEST(BucketPlan, LeavesOutWhatIsNotInTheOrder) {
  const std::vector<GradientShape> shapes(4, {.count = 8});
  EXPECT_EQ(gradients_of(plan_buckets(shapes, std::vector<std::size_t>{3, 1}, {})),
            (std::vector<std::vector<std::size_t>>{{3, 1}}));
  EXPECT_TRUE(plan_buckets(shapes, std::vector<std::size_t>{}, {}).empty());
}

TEST(BucketPlan, PacksSmallOnesOnCacheLinesAndLeavesLargeOnesInPlace) {
  const std::vector<GradientShape> shapes = {{.count = 3}, {.count = 1000}, {.count = 17}, {.count = 0}, {.count = 1}};
  const auto buckets = plan_buckets(shapes, std::vector<std::size_t>{0, 1, 2, 3, 4}, {.in_place_bytes = 4000});
  ASSERT_EQ(buckets.size(), 1u);
  const auto& slots = buckets[0].slots;
  EXPECT_EQ(slots[0].offset, 0u);
  EXPECT_TRUE(slots[1].in_place());
  EXPECT_EQ(slots[2].offset, 16u);
  EXPECT_EQ(slots[3].offset, 48u);
  EXPECT_EQ(slots[4].offset, 48u);
  EXPECT_EQ(buckets[0].packed_count, 64u);
  EXPECT_EQ(buckets[0].bytes, 4u * (3 + 1000 + 17 + 1));
}

TEST(BucketPlan, NeverMixesKinds) {
  const std::vector<GradientShape> shapes = {
      {.count = 4, .element_bytes = 4, .kind = 0}, {.count = 4, .element_bytes = 8, .kind = 1}, {.count = 4}};
  const auto buckets = plan_buckets(shapes, std::vector<std::size_t>{0, 1, 2}, {});
  EXPECT_EQ(gradients_of(buckets), (std::vector<std::vector<std::size_t>>{{0, 2}, {1}}));
  EXPECT_EQ(buckets[1].packed_count, 8u);
}

TEST(BucketPlan, EverythingOnceAndNoTwoOverlap) {
  std::vector<GradientShape> shapes;
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < 200; ++i) {
    shapes.push_back({.count = (i * 7919) % 5000, .element_bytes = i % 3 == 0 ? 2u : 4u, .kind = int(i % 3 == 0)});
    order.push_back((i * 37) % 200);
  }
  std::set<std::size_t> seen;
  for (const auto& bucket :
       plan_buckets(shapes, order, {.first_bytes = 1000, .bytes = 30000, .in_place_bytes = 8000})) {
    std::size_t end = 0;
    for (const auto& slot : bucket.slots) {
      EXPECT_TRUE(seen.insert(slot.gradient).second);
      if (slot.offset == kInPlace) continue;
      EXPECT_GE(slot.offset, end);
      EXPECT_EQ(slot.offset * shapes[slot.gradient].element_bytes % 64, 0u);
      end = slot.offset + shapes[slot.gradient].count;
    }
    EXPECT_LE(end, bucket.packed_count);
  }
  EXPECT_EQ(seen.size(), 200u);
}

}  // namespace
}  // namespace tutti
