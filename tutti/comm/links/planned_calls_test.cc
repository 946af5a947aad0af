#include "tutti/comm/links/planned_calls.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <new>

#include "tutti/base/float16.h"
#include "tutti/base/sanitizers.h"
#include "tutti/transport/inproc/inproc_link.h"

namespace tutti::comm {
namespace {

// Counts the calls of operator new on this thread.
thread_local std::size_t allocations = 0;

// Two ranks that take turns on this thread.
class Pair : public testing::Test {
 protected:
  Pair() {
    for (int rank = 0; rank < 2; ++rank) {
      for (auto& link : mesh_[rank]) rows_[rank].push_back(link.get());
      calls_[rank] = std::make_unique<PlannedCalls>(rows_[rank], rank, hosts_, selector_);
    }
  }

  void run(const Request& first, const Request& second, std::uint64_t sequence) {
    Operation* const operations[] = {calls_[0]->start(first, sequence).or_throw(),
                                     calls_[1]->start(second, sequence).or_throw()};
    bool done[2] = {};
    for (int turn = 0; turn < 10'000'000 && !(done[0] && done[1]); ++turn)
      for (int rank = 0; rank < 2; ++rank)
        if (!done[rank]) done[rank] = operations[rank]->step().or_throw() == Progress::kDone;
    ASSERT_TRUE(done[0] && done[1]) << "no end";
  }

  // Checks an all_reduce of a vector of ones and a vector of twos.
  void sum(std::size_t count, std::uint64_t sequence) {
    std::vector<float> values[2] = {std::vector<float>(count, 1), std::vector<float>(count, 2)};
    Request requests[2];
    for (int rank = 0; rank < 2; ++rank)
      requests[rank] = {.kind = Kind::kAllReduce,
                        .dtype = DType::kF32,
                        .in = values[rank].data(),
                        .out = values[rank].data(),
                        .count = count};
    run(requests[0], requests[1], sequence);
    for (const auto& of_rank : values) EXPECT_EQ(of_rank, std::vector<float>(count, 3)) << count;
  }

  std::vector<std::vector<std::unique_ptr<transport::Link>>> mesh_ = transport::make_inproc_mesh(2, {}, 64 << 10);
  std::vector<transport::Link*> rows_[2];
  const Hosts hosts_ = Hosts::of_sizes(std::vector<int>{1, 1});
  const Selector selector_{hosts_, Network{}, ""};
  std::unique_ptr<PlannedCalls> calls_[2];
};

TEST_F(Pair, ARepeatedCallIsPlannedOnce) {
  for (std::uint64_t sequence = 1; sequence <= 20; ++sequence) sum(sequence % 2 ? 3 : 100'000, sequence);
  EXPECT_EQ(calls_[0]->kept(), 2u);
}

TEST_F(Pair, TheCacheIsBounded) {
  for (std::uint64_t sequence = 1; sequence <= 3 * PlannedCalls::kKept; ++sequence) sum(sequence, sequence);
  EXPECT_EQ(calls_[0]->kept(), PlannedCalls::kKept);
  sum(1, 1000);  // the oldest entry was evicted, so it is planned again
  EXPECT_EQ(calls_[0]->kept(), PlannedCalls::kKept);
}

TEST_F(Pair, ACallLikeTheLastOneAllocatesNothing) {
  std::vector<float> values[2] = {std::vector<float>(100'000, 1), std::vector<float>(100'000, 2)};
  Request requests[2];
  for (const Kind kind : {Kind::kAllReduce, Kind::kBroadcast, Kind::kReduce, Kind::kBarrier}) {
    for (int rank = 0; rank < 2; ++rank)
      requests[rank] = {
          .kind = kind, .dtype = DType::kF32, .in = values[rank].data(), .out = values[rank].data(), .count = 100'000};
    run(requests[0], requests[1], 1);
    const std::size_t before = allocations;
    run(requests[0], requests[1], 2);
    EXPECT_EQ(allocations, before) << name(kind);
  }
}

// One and a half times the staging size, so that the last piece is shorter.
constexpr std::size_t kLong = PlannedCalls::kStaging / sizeof(float) * 3 / 2 + 7;

TEST_F(Pair, LongSumsOf16BitsRunInPieces) {
  std::vector<BFloat16> values[2] = {std::vector<BFloat16>(kLong), std::vector<BFloat16>(kLong)};
  for (std::size_t i = 0; i < kLong; ++i) values[0][i] = to_bfloat16(float(i % 64)), values[1][i] = to_bfloat16(0.5f);
  for (const bool in_place : {true, false}) {
    std::vector<BFloat16> sums[2] = {std::vector<BFloat16>(kLong), std::vector<BFloat16>(kLong)};
    Request requests[2];
    for (int rank = 0; rank < 2; ++rank) {
      if (in_place) sums[rank] = values[rank];
      requests[rank] = {.kind = Kind::kAllReduce,
                        .dtype = DType::kBF16,
                        .op = ReduceOp::kAvg,
                        .in = in_place ? sums[rank].data() : values[rank].data(),
                        .out = sums[rank].data(),
                        .count = kLong};
    }
    run(requests[0], requests[1], in_place ? 1 : 2);
    for (std::size_t i = 0; i < kLong; ++i) {
      ASSERT_EQ(to_float(sums[0][i]), (float(i % 64) + 0.5f) / 2) << i;
      ASSERT_EQ(sums[1][i].bits, sums[0][i].bits) << i;
    }
  }
  EXPECT_EQ(calls_[0]->kept(), 2u) << "a plan for whole pieces, and one for the last";
}

TEST_F(Pair, LongReductionsThatNeedScratchRunInPieces) {
  std::vector<std::int32_t> values[2] = {std::vector<std::int32_t>(kLong), std::vector<std::int32_t>(kLong)};
  for (std::size_t i = 0; i < kLong; ++i) values[0][i] = std::int32_t(i), values[1][i] = 3;
  std::vector<std::int32_t> sum(kLong);
  Request requests[2];
  for (int rank = 0; rank < 2; ++rank)
    requests[rank] = {.kind = Kind::kReduce,
                      .dtype = DType::kI32,
                      .root = 1,
                      .in = values[rank].data(),
                      .out = rank == 1 ? sum.data() : nullptr,
                      .count = kLong};
  run(requests[0], requests[1], 1);
  for (std::size_t i = 0; i < kLong; ++i) ASSERT_EQ(sum[i], std::int32_t(i) + 3);
}

// Parts of different lengths: one of them ends some pieces before the other.
TEST_F(Pair, LongUnevenPartsRunInPieces) {
  const std::size_t splits[] = {kLong, 1000};
  std::vector<float> values[2] = {std::vector<float>(kLong + 1000), std::vector<float>(kLong + 1000)};
  for (std::size_t i = 0; i < values[0].size(); ++i) values[0][i] = float(i % 1000), values[1][i] = 2;
  std::vector<float> sums[2] = {std::vector<float>(splits[0]), std::vector<float>(splits[1])};
  Request requests[2];
  for (int rank = 0; rank < 2; ++rank)
    requests[rank] = {.kind = Kind::kReduceScatterV,
                      .dtype = DType::kF32,
                      .op = ReduceOp::kPremulSum,
                      .in = values[rank].data(),
                      .out = sums[rank].data(),
                      .factor = rank == 0 ? 2.0 : 0.5,
                      .in_splits = splits};
  run(requests[0], requests[1], 1);
  for (std::size_t i = 0; i < splits[0]; ++i) ASSERT_EQ(sums[0][i], 2 * float(i % 1000) + 1) << i;
  for (std::size_t i = 0; i < splits[1]; ++i) ASSERT_EQ(sums[1][i], 2 * float((kLong + i) % 1000) + 1) << i;
}

}  // namespace
}  // namespace tutti::comm

#if !TUTTI_ASAN && !TUTTI_TSAN  // they have an operator new of their own
// Counts for ACallLikeTheLastOneAllocatesNothing. (Not inlined: otherwise the compiler would pair malloc with delete.)
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++tutti::comm::allocations;
  if (void* const memory = std::malloc(bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
#endif
