#include "tutti/comm/heap.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <random>

#include "tutti/comm/shared_memory/group_memory.h"

namespace tutti::comm {
namespace {

TEST(Heap, BlocksAreAlignedApartAndReused) {
  transport::Arena arena = transport::Arena::create(std::size_t(1) << 30).or_throw();
  Heap heap(arena);
  std::mt19937 random(1);
  std::map<std::size_t, std::pair<std::size_t, std::uint8_t>> live;  // offset -> bytes, fill
  for (int step = 0; step < 3000; ++step) {
    if (live.size() > 50) {
      auto it = std::next(live.begin(), long(random() % live.size()));
      for (std::size_t i = 0; i < it->second.first; ++i)
        ASSERT_EQ(std::uint8_t(heap.at(it->first)[i]), it->second.second) << "a block was overwritten";
      heap.release(it->first, it->second.first);
      live.erase(it);
    }
    const std::size_t bytes = 1 + random() % (step % 100 == 0 ? 3000000 : 20000);
    const std::size_t offset = heap.allocate(bytes).or_throw();
    ASSERT_EQ(offset % 64, 0u);
    ASSERT_LE(offset + bytes, arena.size());
    const auto after = live.lower_bound(offset);
    if (after != live.end()) {
      ASSERT_LE(offset + bytes, after->first);
    }
    const auto fill = std::uint8_t(random());
    std::memset(heap.at(offset), fill, bytes);
    live[offset] = {bytes, fill};
  }
  EXPECT_LT(arena.size(), std::size_t(100) << 20) << "freed blocks are not reused";
}

TEST(Heap, ReleasedMemoryServesOtherSizes) {
  constexpr std::size_t kMiB = std::size_t(1) << 20;
  transport::Arena arena = transport::Arena::create(64 * kMiB).or_throw();
  Heap heap(arena);
  std::vector<std::size_t> blocks;
  for (int i = 0; i < 12; ++i) blocks.push_back(heap.allocate(4 * kMiB).or_throw());
  for (const int i : {3, 1, 2, 0, 11, 9, 10, 7, 8, 4, 6, 5}) heap.release(blocks[i], 4 * kMiB);
  const std::size_t large = heap.allocate(48 * kMiB).or_throw();
  heap.release(large, 48 * kMiB);
  for (std::size_t bytes = kMiB; bytes < 40 * kMiB; bytes = bytes * 9 / 8)
    heap.release(heap.allocate(bytes).or_throw(), bytes);
  EXPECT_LE(arena.size(), 49 * kMiB);
}

TEST(Heap, RefusesMoreThanAProcessCanAddress) {
  transport::Arena arena = transport::Arena::create(std::size_t(1) << 20).or_throw();
  Heap heap(arena);
  for (const std::size_t bytes : {~std::size_t(0), ~std::size_t(0) - 62, std::size_t(1) << 60})
    EXPECT_EQ(heap.allocate(bytes).status().error().code, Code::kLimit);
}

TEST(Arena, GrowsInPlaceInAllMappings) {
  transport::Arena mine = transport::Arena::create(64 << 20).or_throw();
  transport::Arena theirs = transport::Arena::map(Fd(::dup(mine.fd())), 64 << 20).or_throw();
  const std::size_t at = mine.grow(3 << 20).or_throw();
  mine.base()[at + 12345] = std::byte{42};
  EXPECT_EQ(theirs.base()[at + 12345], std::byte{42});
}

TEST(Heap, ABlockReportedByAPeerMustFitItsArena) {
  EXPECT_EQ(comm::parse_block_place("128", 64, 1024), 128u);
  EXPECT_EQ(comm::parse_block_place("960", 64, 1024), 960u);
  for (const char* place : {"", "x", "-64", "100", "1024", "961", "18446744073709551552", "9223372036854775744"})
    EXPECT_EQ(comm::parse_block_place(place, 64, 1024), std::nullopt) << place;
  EXPECT_EQ(comm::parse_block_place("0", 2048, 1024), std::nullopt);
}

TEST(Arena, ExplainsWhyItCannotGrowBeyondItsLimit) {
  transport::Arena arena = transport::Arena::create(2 << 20).or_throw();
  const auto more = arena.grow(64 << 20);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(to_string(more.error()),
            "Limit: cannot grow the shared heap by 64 MiB beyond 0 B (hint: the limit is 2 MiB, in steps of "
            "2 MiB; TUTTI_HEAP_LIMIT=64G sets another)");
}

}  // namespace
}  // namespace tutti::comm
