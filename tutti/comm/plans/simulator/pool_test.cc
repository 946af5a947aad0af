#include "tutti/comm/plans/simulator/pool.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>

using namespace tutti::comm;

namespace {

struct Piece {
  unsigned char* at;
  std::size_t bytes, alignment;
  unsigned char filling;
  bool whole() const {
    for (std::size_t i = 0; i < bytes; ++i)
      if (at[i] != filling) return false;
    return true;
  }
};

// The pattern of a simulation: most blocks are small, some have hundreds of KB, and they are returned in any order.
TEST(Pool, BlocksDoNotOverlapAndKeepTheirBytes) {
  Pool pool;
  std::mt19937 random(1);
  std::vector<Piece> pieces;
  const auto give_back = [&](std::size_t i) {
    EXPECT_TRUE(pieces[i].whole());
    pool.deallocate(pieces[i].at, pieces[i].bytes, pieces[i].alignment);
    pieces[i] = pieces.back();
    pieces.pop_back();
  };
  for (int turn = 0; turn < 20'000; ++turn) {
    const std::size_t bytes = random() % 100 == 0 ? 1 + random() % 300'000 : 1 + random() % 3'000;
    const std::size_t alignment = random() % 8 == 0 ? 64 : 8;
    auto* const at = static_cast<unsigned char*>(pool.allocate(bytes, alignment));
    ASSERT_EQ(reinterpret_cast<std::uintptr_t>(at) % alignment, 0u);
    pieces.push_back({at, bytes, alignment, static_cast<unsigned char>(turn)});
    std::memset(at, turn, bytes);
    if (pieces.size() > 500) give_back(random() % pieces.size());
  }
  while (!pieces.empty()) give_back(0);
}

TEST(Pool, ReusesReturnedBlocks) {
  Pool pool;
  for (const std::size_t bytes : {32u, 2'048u, 2'049u, 5'000'000u}) {
    void* const first = pool.allocate(bytes);
    pool.deallocate(first, bytes);
    EXPECT_EQ(pool.allocate(bytes), first) << bytes << " bytes";
  }
}

}  // namespace
