#include "tutti/comm/sparse_metadata.h"

#include <gmock/gmock.h>

#include <limits>

namespace tutti::comm {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kSizes[] = {5, 2};
// Of a row: entries, type, op, sparse dimensions, dimensions, sizes.
SparseRow row() { return to_row({.entries = 3, .op = ReduceOp::kAvg, .sparse_dimensions = 1, .sizes = kSizes}); }

std::string refusal(std::size_t place, std::int64_t value) {
  SparseRow changed = row();
  changed[place] = value;
  const auto metadata = parse_sparse_metadata(changed);
  if (metadata.ok()) return "taken as " + to_string(*metadata);
  EXPECT_EQ(metadata.error().code, Code::kCorrupt);
  return metadata.error().detail;
}

TEST(SparseMetadata, SurviveBeingAnnounced) {
  const SparseRow sent = row();
  const auto metadata = parse_sparse_metadata(sent);
  ASSERT_TRUE(metadata.ok());
  EXPECT_EQ(metadata->entries, 3);
  EXPECT_EQ(to_string(*metadata), "f32[5, 2] with 1 sparse dimension to avg");
  EXPECT_TRUE(metadata->is_like({.op = ReduceOp::kAvg, .sparse_dimensions = 2, .sizes = kSizes}));
  EXPECT_FALSE(metadata->is_like({.sparse_dimensions = 1, .sizes = kSizes}));
}

TEST(SparseMetadata, ThatCannotBeAreRefused) {
  EXPECT_THAT(refusal(0, -1), HasSubstr("an invalid sparse tensor: it has -1 entries in 5 places"));
  EXPECT_THAT(refusal(0, 6), HasSubstr("it has 6 entries in 5 places"));
  EXPECT_THAT(refusal(1, 77), HasSubstr("there is no type 77"));
  EXPECT_THAT(refusal(2, -3), HasSubstr("there is no op -3"));
  EXPECT_THAT(refusal(3, 3), HasSubstr("3 of its 2 dimensions are sparse"));
  EXPECT_THAT(refusal(4, 9), HasSubstr("it has 9 dimensions"));
  EXPECT_THAT(refusal(4, std::numeric_limits<std::int64_t>::min()), HasSubstr("dimensions"));
  EXPECT_THAT(refusal(5, -5), HasSubstr("one of its sizes is -5"));
}

TEST(SparseMetadata, PlacesBeyondAllNumbersAreManyEnough) {
  constexpr std::int64_t kHuge[] = {std::int64_t(1) << 62, 8, 3};
  const SparseRow sent = to_row({.entries = std::int64_t(1) << 62, .sparse_dimensions = 2, .sizes = kHuge});
  EXPECT_TRUE(parse_sparse_metadata(sent).ok());
  constexpr std::int64_t kEmpty[] = {std::int64_t(1) << 62, 8, 0};
  EXPECT_FALSE(parse_sparse_metadata(to_row({.entries = 1, .sparse_dimensions = 3, .sizes = kEmpty})).ok());
}

}  // namespace
}  // namespace tutti::comm
