#include "tutti/launch/layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti::launch {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(RankCounts, OneNode) {
  const auto counts = parse_rank_counts("4", {}, 0, {.cores = 2});
  ASSERT_TRUE(counts.ok());
  EXPECT_EQ(counts->here, 4);
  EXPECT_THAT(counts->all, ElementsAre(4));
  EXPECT_THAT(parse_rank_counts("auto", {}, 0, {.cores = 6})->all, ElementsAre(6));
  EXPECT_EQ(parse_rank_counts("cpu", {}, 0, {.cores = 6})->here, 6);
}

TEST(RankCounts, GpusGoBeforeCoresAndAreNotMadeUp) {
  EXPECT_EQ(parse_rank_counts("auto", {}, 0, {.cores = 6, .gpus = 2})->here, 2);
  EXPECT_EQ(parse_rank_counts("gpu", {}, 0, {.cores = 6, .gpus = 2})->here, 2);
  EXPECT_EQ(parse_rank_counts("cpu", {}, 0, {.cores = 6, .gpus = 2})->here, 6);
  EXPECT_EQ(parse_rank_counts("gpu", {}, 0, {.cores = 6}).error().detail, "-n gpu, but no GPU is visible on this host");
}

TEST(RankCounts, OfSeveralNodesAreExchangedOrListed) {
  const auto own = parse_rank_counts("8", 2, 1, {.cores = 2});
  EXPECT_EQ(own->here, 8);
  EXPECT_THAT(own->all, IsEmpty());
  const auto listed = parse_rank_counts("8,2", {}, 1, {.cores = 2});
  EXPECT_EQ(listed->here, 2);
  EXPECT_THAT(listed->all, ElementsAre(8, 2));
  EXPECT_THAT(parse_rank_counts("auto", 3, 1, {.cores = 2})->all, IsEmpty());
}

TEST(RankCounts, Contradictions) {
  EXPECT_THAT(parse_rank_counts("8,2", 3, 0, {.cores = 2}).error().detail,
              HasSubstr("lists 2 nodes, but --nnodes is 3"));
  EXPECT_THAT(parse_rank_counts("8,2", {}, 2, {.cores = 2}).error().detail,
              HasSubstr("--node-rank 2 is not one of the 2 nodes"));
  const Error unnumbered = parse_rank_counts("8,2", 2, -1, {.cores = 2}).error();
  EXPECT_THAT(unnumbered.detail, HasSubstr("the nodes of an elastic job have no numbers"));
  EXPECT_THAT(unnumbered.hint, HasSubstr("give each node its own -n"));
  for (const char* wrong : {"0", "-1", "x", "", "1.5", "8,0", "8,", "99999999999999999999"}) {
    EXPECT_EQ(parse_rank_counts(wrong, {}, 0, {.cores = 2}).error().code, Code::kUsage) << wrong;
  }
}

TEST(Layout, RanksAreTheRunningSum) {
  for (const auto& [node, first] : {std::pair(0, 0), {1, 8}, {2, 10}}) {
    const Layout layout{.counts = {8, 2, 5}, .node = node};
    EXPECT_EQ(layout.first_rank(), first);
    EXPECT_EQ(layout.world_size(), 15);
    EXPECT_EQ(layout.here(), layout.counts[std::size_t(node)]);
  }
}

}  // namespace
}  // namespace tutti::launch
