// What peers see of one another's buffers, and when they see nothing.
#include "tutti/comm/peer_memory.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"

namespace tutti {
namespace {

std::vector<std::byte*> show(const Group& group, std::span<int> buffer) {
  const std::span<std::byte> mine[] = {std::as_writable_bytes(buffer)};
  return peer_memory(group, mine).or_throw();
}

TEST(PeerMemory, RanksReadAndWriteOneAnothers) {
  const auto outcomes = test::run_processes(3, [](Group& world) {
    const auto memory = world.allocate_array<int>(8);
    for (int i = 0; i < 8; ++i) memory[i] = 100 * world.rank() + i;
    const auto everywhere = show(world, {memory.get(), 8});
    test::check(everywhere.size() == 3, everywhere.size());
    for (int r = 0; r < 3; ++r) test::check(reinterpret_cast<int*>(everywhere[r])[5] == 100 * r + 5, "read from ", r);
    barrier(world);
    reinterpret_cast<int*>(everywhere[(world.rank() + 1) % 3])[7] = 1000 + world.rank();
    barrier(world);
    test::check(memory[7] == 1000 + (world.rank() + 2) % 3, memory[7]);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(PeerMemory, OnePrivateBufferHidesItOnEveryRank) {
  const auto outcomes = test::run_processes(2, [](Group& world) {
    const auto memory = world.allocate_array<int>(8);
    std::vector<int> own(8);
    const std::span<int> shown(memory.get(), 8), hidden = world.rank() == 0 ? std::span<int>(own) : shown;
    const std::span<std::byte> mine[] = {std::as_writable_bytes(hidden), std::as_writable_bytes(shown)};
    const auto seen = peer_memory(world, mine).or_throw();
    test::check(seen.size() == 4 && !seen[0] && !seen[1] && seen[2] && seen[3], "what is seen");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(PeerMemory, OverLinksNothingIsSeen) {
  const auto outcomes =
      test::run_processes(2,
                          [](Group& world) {
                            const auto memory = world.allocate_array<int>(8);
                            const auto seen = show(world, {memory.get(), 8});
                            test::check(seen.size() == 2 && !seen[0] && !seen[1], "something is seen");
                          },
                          {.transport = "tcp"});
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(PeerMemory, BuffersOfDifferentSizesAreReportedOnEveryRank) {
  const auto outcomes = test::run_processes(2, [](Group& world) {
    const auto memory = world.allocate_array<int>(8);
    try {
      (void)show(world, {memory.get(), std::size_t(8 - world.rank())});
    } catch (const Exception& e) {
      const std::string words = e.what();
      test::check(
          words.find(detail::words("rank ", 1 - world.rank(), " shows ", 4 * (7 + world.rank()),
                                   " bytes as buffer 0, this rank ", 4 * (8 - world.rank()))) != std::string::npos,
          words);
      return;
    }
    test::check(false, "nothing was said");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
