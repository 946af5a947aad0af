#include "tutti/comm/plans/simulator/bound.h"

#include <gtest/gtest.h>

namespace tutti::comm {
namespace {

constexpr double kInside = 8e9, kCard = 1e9, kAlpha = 10e-6;
constexpr std::size_t kCount = 1 << 20;  // bytes

Network network() {
  Network network;
  network.inside = {.latency = 1e-6, .bandwidth = kInside};
  network.between = {.latency = kAlpha, .bandwidth = kCard};
  return network;
}

double bandwidth(Kind kind, const std::vector<int>& ranks_of_hosts, int root = 0, int cards = 1) {
  const Hosts hosts = Hosts::of_sizes(ranks_of_hosts);
  Network n = network();
  n.cards = cards;
  return bound_of(kind, {.size = hosts.ranks(), .root = root, .count = kCount, .hosts = &hosts}, n).bandwidth;
}

TEST(Bound, SingleRanks) {
  constexpr double s = kCount / kCard;
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kAllReduce, {1, 1, 1, 1}), 1.5 * s);
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kBroadcast, {1, 1, 1, 1}), s);
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kReduce, {1, 1, 1, 1}), s);
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kAllGather, {1, 1, 1, 1}), 3 * s);
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kReduceScatter, {1, 1, 1, 1}), 3 * s);
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kGather, {1, 1, 1, 1}, 2), 3 * s);
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kScatter, {1, 1, 1, 1}, 2), 3 * s);
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kAllToAll, {1, 1, 1, 1}), 3 * s);
  EXPECT_EQ(bandwidth(Kind::kBarrier, {1, 1, 1, 1}), 0);
}

TEST(Bound, RanksOfAHostShareItsCard) {
  constexpr double s = kCount / kCard;
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kAllReduce, {4, 4}), s);
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kAllReduce, {4, 4}, 0, 2), s / 2);
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kAllGather, {3, 1}), 3 * s) << "the small host takes in the parts of the large one";
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kGather, {3, 1}, 0), s);
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kGather, {3, 1}, 3), 3 * s);
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kAllToAll, {3, 1}), 3 * s);
  EXPECT_DOUBLE_EQ(bandwidth(Kind::kAllReduce, {4}), 1.5 * kCount / kInside) << "one host: the ports of its ranks";
}

// Rank 1 gathers from 12 ranks of its host and one of another. It receives from its own host before the other's first
// byte can be there.
TEST(Bound, OfARankAddsTheLatencyOfItsHost) {
  const Hosts hosts = Hosts::of_sizes(std::vector<int>{1, 13});
  Network slow_inside = network();
  slow_inside.inside.bandwidth = kCard / 2;
  const Shape shape{.size = 14, .root = 1, .count = kCount, .hosts = &hosts};
  const Bound bound = bound_of(Kind::kGather, shape, slow_inside);
  EXPECT_EQ(bound.latency, 1e-6);
  EXPECT_DOUBLE_EQ(bound.bandwidth, 13 * double(kCount) / (1.5 * kCard));
}

TEST(Bound, IsAtLeastOneHop) {
  const Hosts one = Hosts::of_sizes(std::vector<int>{4});
  EXPECT_EQ(bound_of(Kind::kBarrier, {.size = 4}, network()).seconds(), kAlpha);
  EXPECT_EQ(bound_of(Kind::kBarrier, {.size = 4, .hosts = &one}, network()).seconds(), 1e-6);
  EXPECT_EQ(bound_of(Kind::kAllReduce, {.size = 1, .count = kCount}, network()).seconds(), 0);
}

}  // namespace
}  // namespace tutti::comm
