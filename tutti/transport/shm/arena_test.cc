#include "tutti/transport/shm/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

namespace tutti {
namespace {

constexpr std::size_t kMiB = std::size_t(1) << 20, kTiB = std::size_t(1) << 40;

// Pages behind a hole in the mapping cannot be populated, as on a machine without memory.
struct ArenaWithAHole {
  explicit ArenaWithAHole(std::size_t at) : arena(Arena::create(16 * kMiB).or_throw()) {
    if (::munmap(arena.base() + at, 2 * kMiB) != 0) std::abort();
  }
  std::size_t resident() const {
    struct stat info {};
    return ::fstat(arena.fd(), &info) == 0 ? std::size_t(info.st_blocks) * 512 : 0;
  }
  Arena arena;
};

TEST(Arena, ALargeGrowthThatFailsLeavesRoomForSmallOnes) {
  ArenaWithAHole part(8 * kMiB);
  const auto large = part.arena.grow(12 * kMiB);
  ASSERT_FALSE(large.ok());
  EXPECT_EQ(large.error().code, Code::kLimit);
  EXPECT_EQ(part.arena.size(), 0u);
  EXPECT_EQ(part.resident(), 0u) << "what it got before it failed is given back";
  for (const std::size_t bytes : {std::size_t(4096), 2 * kMiB, 4 * kMiB}) {
    const std::size_t before = part.arena.size();
    const auto small = part.arena.grow(bytes);
    ASSERT_TRUE(small.ok()) << to_string(small.error());
    EXPECT_EQ(*small, before);
    std::fill_n(part.arena.base() + *small, bytes, std::byte{1});
  }
  EXPECT_FALSE(part.arena.grow(4 * kMiB).ok()) << "the hole is still there";
  EXPECT_TRUE(part.arena.grow(4096).ok());
}

TEST(Arena, ReservesOfManyRanksFitIntoOneProcess) {
  EXPECT_EQ(default_reserve(64 * kMiB, 2), 64 * kMiB);
  EXPECT_EQ(default_reserve(3 * kTiB / 2, 2), 3 * kTiB / 2);
  for (const int ranks : {1, 7, 96, 1000}) EXPECT_LE(default_reserve(64 * kTiB, ranks) * ranks, 32 * kTiB);
  EXPECT_GT(default_reserve(3 * kTiB / 2, 96), 300 * 1024 * kMiB);
}

}  // namespace
}  // namespace tutti
