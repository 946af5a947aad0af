#include "tutti/transport/shm/arena.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <string>

namespace tutti::transport {
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
  ArenaWithAHole part(10 * kMiB);
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

// Of a mapping of this process that begins at `base`, by what the kernel says.
std::size_t bytes_in_huge_pages(const std::byte* base) {
  std::ifstream maps("/proc/self/smaps");
  char begin[32];
  std::snprintf(begin, sizeof begin, "%lx-", reinterpret_cast<unsigned long>(base));
  std::size_t kilobytes = 0;
  bool is_here = false;
  for (std::string line; std::getline(maps, line);) {
    if (const bool begins = line.find('-') < line.find(' '); begins) is_here = line.starts_with(begin);
    if (is_here && line.starts_with("ShmemPmdMapped:")) kilobytes = std::stoul(line.substr(15));
  }
  return kilobytes * 1024;
}

TEST(Arena, LargePiecesLieInHugePages) {
  Arena arena = Arena::create(64 * kMiB).or_throw();
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arena.base()) % (2 * kMiB), 0u);
  EXPECT_EQ(arena.grow(4096).or_throw(), 0u);
  EXPECT_EQ(arena.grow(9 * kMiB).or_throw(), 4096u);
  EXPECT_EQ(arena.size(), 10 * kMiB) << "the next begins where a huge page does";
  EXPECT_EQ(arena.grow(20 * kMiB).or_throw(), 10 * kMiB);
  const bool all_zero =
      std::all_of(arena.base(), arena.base() + arena.size(), [](std::byte b) { return b == std::byte{0}; });
  EXPECT_TRUE(all_zero);
  const std::size_t huge = bytes_in_huge_pages(arena.base());
  if (huge == 0)
    GTEST_SKIP() << "this system gives no huge pages to shared memory (Linux 6.1 and a little free memory)";
  EXPECT_GE(huge, 20 * kMiB);
}

TEST(Arena, APeerThatSendsSomethingElseIsAnError) {
  const auto refusal = [](Fd fd, std::size_t reserved) {
    const auto arena = Arena::map(std::move(fd), reserved, 4096);
    return arena.ok() ? "" : to_string(arena.error());
  };
  const auto memory = [](off_t bytes, bool sealed) {
    Fd fd(::memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    EXPECT_EQ(::ftruncate(fd.get(), bytes), 0);
    EXPECT_TRUE(!sealed || ::fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return fd;
  };
  EXPECT_EQ(refusal(memory(4096, true), 2 * kMiB), "");
  const auto is_no_arena = ::testing::HasSubstr("it sent a file that is not an arena");
  EXPECT_THAT(refusal(memory(4096, false), 2 * kMiB), is_no_arena) << "it could shrink while it is read";
  EXPECT_THAT(refusal(memory(0, true), 2 * kMiB), is_no_arena) << "reading its first line would be a SIGBUS";
  EXPECT_THAT(refusal(memory(4096, true), ~std::size_t(0)), is_no_arena);
  EXPECT_THAT(refusal(memory(8192, true), 4096), is_no_arena);
  EXPECT_THAT(refusal(Fd(::open("/dev/null", O_RDWR | O_CLOEXEC)), 2 * kMiB), is_no_arena);
}

TEST(Arena, ReservesOfManyRanksFitIntoOneProcess) {
  EXPECT_EQ(default_reserve(64 * kMiB, 2), 64 * kMiB);
  EXPECT_EQ(default_reserve(3 * kTiB / 2, 2), 3 * kTiB / 2);
  for (const int ranks : {1, 7, 96, 1000}) EXPECT_LE(default_reserve(64 * kTiB, ranks) * ranks, 32 * kTiB);
  EXPECT_GT(default_reserve(3 * kTiB / 2, 96), 300 * 1024 * kMiB);
}

}  // namespace
}  // namespace tutti::transport
