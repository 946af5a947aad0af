#include "tutti/comm/cuda/pieces.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tutti/comm/layout.h"

namespace tutti::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;

auto run(std::size_t from, std::size_t count, std::size_t at) {
  return testing::AllOf(Field(&Run::elements_from, from), Field(&Run::count, count), Field(&Run::bytes_at, at));
}

TEST(Pieces, OfOneBufferAreConsecutive) {
  const Pieces pieces({.kind = Kind::kAllReduce, .dtype = DType::kF32, .count = 10}, 0, 3, 16);
  ASSERT_EQ(pieces.number(), 3u);
  EXPECT_FALSE(pieces.needs_agreement());
  EXPECT_THAT(pieces.make(0).to_read, ElementsAre(run(0, 4, 0)));
  EXPECT_THAT(pieces.make(2).to_write, ElementsAre(run(8, 2, 0)));
  EXPECT_EQ(pieces.make(2).request.count, 2u);
  EXPECT_EQ(pieces.largest(), 16u);
}

TEST(Pieces, TakeARunOfEveryPart) {
  const Pieces pieces({.kind = Kind::kAllGather, .dtype = DType::kF32, .count = 5}, 1, 2, 16);  // 2 of each part
  ASSERT_EQ(pieces.number(), 3u);
  const StagedPiece second = pieces.make(1);
  EXPECT_THAT(second.to_write, ElementsAre(run(2, 2, 0), run(7, 2, 8)));
  EXPECT_THAT(second.to_read, ElementsAre(run(2, 2, 8)));  // in place: this rank's own part
  EXPECT_EQ(second.in, 8u);
  const StagedPiece last = pieces.make(2);
  EXPECT_THAT(last.to_write, ElementsAre(run(4, 1, 0), run(9, 1, 4)));
  EXPECT_EQ(last.in, 4u);
}

TEST(Pieces, OfUnevenPartsHaveTheirOwnSplits) {
  const std::vector<std::size_t> splits = {1, 0, 5};
  const Pieces pieces({.kind = Kind::kReduceScatterV, .dtype = DType::kI64, .in_splits = splits}, 2, 3, 48);
  ASSERT_EQ(pieces.number(), 3u);  // 2 elements of each part
  EXPECT_THAT(pieces.make(0).in_splits, ElementsAre(1, 0, 2));
  EXPECT_THAT(pieces.make(2).in_splits, ElementsAre(0, 0, 1));
  EXPECT_THAT(pieces.make(2).to_write, ElementsAre(run(4, 1, 0)));
  EXPECT_THAT(pieces.make(2).to_read, ElementsAre(run(5, 1, 0)));
}

// Ranks that do not know each other's parts: pieces beyond those that this rank needs are empty.
TEST(Pieces, BeyondTheLastAreEmpty) {
  const std::vector<std::size_t> ins = {1, 2}, outs = {1, 1};
  const Pieces pieces({.kind = Kind::kAllToAll, .dtype = DType::kU8, .in_splits = ins, .out_splits = outs}, 0, 2, 2);
  EXPECT_TRUE(pieces.needs_agreement());
  EXPECT_EQ(pieces.number(), 2u);
  const StagedPiece beyond = pieces.make(7);
  EXPECT_THAT(beyond.in_splits, ElementsAre(0, 0));
  EXPECT_TRUE(beyond.to_read.empty() && beyond.to_write.empty());
  EXPECT_TRUE(beyond.reads && beyond.writes);
}

TEST(Pieces, AMessageIsOnePiece) {
  const Pieces pieces({.kind = Kind::kSend, .dtype = DType::kF64, .root = 1, .count = 1000}, 0, 2, 16);
  EXPECT_EQ(pieces.number(), 1u);
  EXPECT_EQ(pieces.largest(), 8000u);
}

// Every element of every buffer is in exactly one piece.
TEST(Pieces, TogetherCoverTheCall) {
  for (int kind = 0; kind <= int(kLastCollective); ++kind)
    for (const int size : {1, 2, 5})
      for (int rank = 0; rank < size; ++rank)
        for (const std::size_t most : {1, 24, 1000}) {
          std::vector<std::size_t> splits;
          for (int r = 0; r < size; ++r) splits.push_back(std::size_t(r * 7 % 5));
          Request request{.kind = Kind(kind), .dtype = DType::kI32, .count = 9};
          if (is_uneven(request.kind) && has_root(request.kind)) request.count = splits[std::size_t(rank)];
          if (is_uneven(request.kind) && (rank == 0 || !has_root(request.kind)))
            (gives_parts(request.kind) ? request.in_splits : request.out_splits) = splits;
          if (is_point_to_point(request.kind) && size == 1) continue;
          const Pieces pieces(request, rank, size, most);
          const comm::Extent extent = *comm::extent_of(request, rank, size);
          const bool gives = request.kind == Kind::kBroadcast && rank == 0;
          std::vector<int> read(gives ? extent.out : extent.in), written(gives ? 0 : extent.out);
          for (std::size_t k = 0; k < pieces.number(); ++k) {
            const StagedPiece piece = pieces.make(k);
            for (const auto& r : piece.to_read) {
              EXPECT_LE(r.bytes_at + r.count * 4, pieces.largest());
              for (std::size_t i = 0; i < r.count; ++i) ++read.at(r.elements_from + i);
            }
            for (const auto& r : piece.to_write) {
              EXPECT_LE(r.bytes_at + r.count * 4, pieces.largest());
              for (std::size_t i = 0; i < r.count; ++i) ++written.at(r.elements_from + i);
            }
          }
          const auto once = [](const std::vector<int>& times) {
            return std::all_of(times.begin(), times.end(), [](int t) { return t == 1; });
          };
          EXPECT_TRUE(once(read) && once(written)) << name(request.kind) << " rank " << rank << " of " << size;
        }
}

}  // namespace
}  // namespace tutti::cuda
