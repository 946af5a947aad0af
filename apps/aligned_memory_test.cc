#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <random>
#include <string>

#include "tutti/base/sanitizers.h"
#include "tutti/launch/tuning.h"

namespace tutti {
namespace {

#if defined(__GLIBC__) && !TUTTI_ASAN && !TUTTI_TSAN  // they have a posix_memalign of their own
void* aligned(std::size_t alignment, std::size_t bytes) {
  void* block = nullptr;
  if (::posix_memalign(&block, alignment, bytes) != 0) std::abort();
  return block;
}

// Buffers of products, of four sizes, come and go between small blocks.
void use_buffers() {
  std::minstd_rand random;
  std::array<void*, 200> kept{};
  for (std::size_t i = 0; i < 2000; ++i) {
    void* const buffer = aligned(128, (std::size_t(5) << 20) + i % 4 * (std::size_t(700) << 10));
    void*& slot = kept[random() % kept.size()];
    std::free(slot);
    slot = std::malloc(16 + random() % 600);
    std::free(buffer);
    std::free(std::malloc(16 + random() % 3000));
  }
}

// What the heap grows by while `act` runs, in MiB; -1: it crashed.
int growth_in_mebibytes(void (*act)()) {
  const pid_t child = fork();  // the thresholds last as long as their process
  if (child == 0) {
    launch::keep_freed_memory([](const std::string&) { return std::optional<std::string>(); });
    const std::size_t before = ::mallinfo2().arena;
    act();
    _exit(int((::mallinfo2().arena - before) >> 20));
  }
  int status = -1;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(AlignedMemory, BuffersOfProductsAreReused) {
  const int growth = growth_in_mebibytes(use_buffers);
  EXPECT_GE(growth, 0);
  EXPECT_LE(growth, 24) << "MiB, for buffers of at most 7";
}

TEST(AlignedMemory, TensorsThatStayLeaveHardlyAnyHoles) {
  const int growth = growth_in_mebibytes([] {
    for (int i = 0; i < 128; ++i) (void)aligned(64, std::size_t(1) << 20);
  });
  EXPECT_GE(growth, 128);
  EXPECT_LE(growth, 132) << "MiB, for 128 tensors of 1";
}

TEST(AlignedMemory, IsAlignedAsAsked) {
  for (const std::size_t alignment : {std::size_t(64), std::size_t(1) << 21})
    for (const std::size_t bytes : {std::size_t(100), std::size_t(1) << 20}) {
      void* block = nullptr;
      ASSERT_EQ(::posix_memalign(&block, alignment, bytes), 0);
      EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignment, 0u);
      std::free(block);
    }
  void* none = nullptr;
  EXPECT_EQ(::posix_memalign(&none, 24, 100), EINVAL);
  EXPECT_EQ(::posix_memalign(&none, 64, std::size_t(-1) / 2), ENOMEM);
}
#endif

}  // namespace
}  // namespace tutti
