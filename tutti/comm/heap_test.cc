#include "tutti/comm/heap.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <random>

namespace tutti {
namespace {

TEST(Heap, BlocksAreAlignedApartAndReused) {
  Arena arena = Arena::create(std::size_t(1) << 30).or_throw();
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

TEST(Arena, GrowsInPlaceForWhoeverMappedIt) {
  Arena mine = Arena::create(64 << 20).or_throw();
  Arena theirs = Arena::map(Fd(::dup(mine.fd())), 64 << 20).or_throw();
  const std::size_t at = mine.grow(3 << 20).or_throw();
  mine.base()[at + 12345] = std::byte{42};
  EXPECT_EQ(theirs.base()[at + 12345], std::byte{42});
}

TEST(Arena, RefusesToGrowBeyondItsLimitInASentence) {
  Arena arena = Arena::create(2 << 20).or_throw();
  const auto more = arena.grow(64 << 20);
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(to_string(more.error()),
            "Limit: cannot grow the shared heap by 64 MiB beyond 0 B (hint: the limit is 2 MiB; TUTTI_HEAP_LIMIT=64G "
            "sets another)");
}

}  // namespace
}  // namespace tutti
