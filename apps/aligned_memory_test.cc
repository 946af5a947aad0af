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
// What the heap grows by while buffers of products, of four sizes, come and go between small blocks.
std::size_t growth_of_the_heap() {
  const std::size_t before = ::mallinfo2().arena;
  std::minstd_rand random;
  std::array<void*, 200> kept{};
  for (std::size_t i = 0; i < 2000; ++i) {
    void* buffer = nullptr;
    if (::posix_memalign(&buffer, 128, (std::size_t(5) << 20) + i % 4 * (std::size_t(700) << 10)) != 0) std::abort();
    void*& slot = kept[random() % kept.size()];
    std::free(slot);
    slot = std::malloc(16 + random() % 600);
    std::free(buffer);
    std::free(std::malloc(16 + random() % 3000));
  }
  return ::mallinfo2().arena - before;
}

TEST(AlignedMemory, BuffersOfProductsAreReused) {
  const pid_t child = fork();  // the thresholds last as long as their process
  if (child == 0) {
    launch::keep_freed_memory([](const std::string&) { return std::optional<std::string>(); });
    _exit(int(growth_of_the_heap() >> 20));
  }
  int status = -1;
  waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_LE(WEXITSTATUS(status), 24) << "MiB, for buffers of at most 7";
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
