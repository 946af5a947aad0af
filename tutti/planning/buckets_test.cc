// The tables of PyTorch's ComputeBucketAssignmentTest (test/distributed/test_c10d_common.py).
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

TEST(Buckets, Nothing) {
  EXPECT_EQ(assign({}, {400}), Buckets{});
  EXPECT_THROW(assign({floats(1)}, {}), Exception);
}

}  // namespace
}  // namespace tutti
