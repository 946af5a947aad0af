#include "tutti/comm/shared_memory/spread.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace tutti::comm {
namespace {

using Cores = std::vector<std::uint32_t>;

// The conclusion of every rank: (rank, core) for the ranks that move.
std::vector<std::pair<int, std::uint32_t>> moves(const Cores& cores, const Cores& usable) {
  std::vector<std::pair<int, std::uint32_t>> found;
  for (int rank = 0; rank < int(cores.size()); ++rank)
    if (const auto core = better_core(cores, rank, usable)) found.emplace_back(rank, *core);
  return found;
}

TEST(BetterCore, TheHighestRankOfTheFullestCoreMovesToTheEmptiest) {
  using Moves = std::vector<std::pair<int, std::uint32_t>>;
  EXPECT_EQ(moves({0, 0, 0, 1}, {0, 1}), (Moves{{2, 1}}));
  EXPECT_EQ(moves({5, 5, 5, 5}, {4, 5}), (Moves{{3, 4}}));
  EXPECT_EQ(moves({0, 0, 0, 1, 1, 1, 2, 2}, {0, 1, 2, 3}), (Moves{{2, 3}})) << "one at a time";
}

TEST(BetterCore, NoRankMovesIfItWouldNotHelp) {
  EXPECT_TRUE(moves({0, 0, 1, 1}, {0, 1}).empty());
  EXPECT_TRUE(moves({0, 1, 0}, {0, 1}).empty());
  EXPECT_TRUE(moves({0, 0, 0, 0}, {0}).empty()) << "a rank that is bound stays";
  EXPECT_TRUE(moves({0, 0, 0, 0}, {1}).empty()) << "bound elsewhere since it told where it ran";
  EXPECT_TRUE(moves({0}, {0, 1}).empty());
}

TEST(BetterCore, RepeatedMovesBalanceTheCores) {
  Cores cores(16, 0);
  const Cores usable = {0, 1, 2};
  for (int turn = 0; turn < 100; ++turn) {
    const auto found = moves(cores, usable);
    if (found.empty()) break;
    ASSERT_EQ(found.size(), 1u);
    cores[std::size_t(found[0].first)] = found[0].second;
  }
  for (std::uint32_t core : usable) {
    EXPECT_GE(std::count(cores.begin(), cores.end(), core), 5);
    EXPECT_LE(std::count(cores.begin(), cores.end(), core), 6);
  }
}

}  // namespace
}  // namespace tutti::comm
