// The tables of PyTorch's ComputeBucketAssignmentTest (test/distributed/test_c10d_common.py), and of Megatron-LM's
// test_bucket_sizes (tests/unit_tests/distributed/test_param_and_grad_buffer.py).
#include "tutti/planning/buckets.h"

#include <gmock/gmock.h>

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

}  // namespace
}  // namespace tutti
