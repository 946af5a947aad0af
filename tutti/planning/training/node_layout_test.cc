#include "tutti/planning/training/node_layout.h"

#include <gtest/gtest.h>

#include <vector>

#include "tutti/planning/training/device_time.h"

namespace tutti::planning {
namespace {

NodeLayout nodes_of(const std::vector<int>& devices) {
  Cluster cluster;
  for (const int here : devices) cluster.nodes.push_back({.count = 1, .devices = here});
  return NodeLayout(cluster);
}

using Place = std::vector<double>;  // size, here, at once, nodes
Place place(const NodeLayout& layout, int stride, int size) {
  const GroupPlace found = layout.place(stride, size);
  return {double(found.size), double(found.here), double(found.at_once), found.nodes};
}

TEST(NodeLayouts, EqualNodesShareCardsAmongTheGroupsOfAnAxis) {
  const NodeLayout layout = nodes_of({8, 8, 8, 8});
  EXPECT_EQ(place(layout, 1, 8), (Place{8, 8, 1, 1}));    // a node
  EXPECT_EQ(place(layout, 2, 16), (Place{16, 4, 2, 4}));  // data ranks beside tp 2: two groups on each node
  EXPECT_EQ(place(layout, 8, 4), (Place{4, 1, 8, 4}));    // beside tp 8: each device has a group of its own
  EXPECT_EQ(place(layout, 1, 16), (Place{16, 8, 1, 2}));
  EXPECT_EQ(layout.crossing(4, 2), 0);  // both on one node
  EXPECT_EQ(layout.crossing(4, 4), 4);
  EXPECT_EQ(layout.crossing(8, 2), 8);
  EXPECT_EQ(layout.crossing(1, 16), 1);
  EXPECT_EQ(layout.crossing(16, 2), 8);
  EXPECT_EQ(layout.node_of(17), 2);
}

TEST(NodeLayouts, GroupsThatDoNotDivideANodeCross) {
  const NodeLayout layout = nodes_of({8, 8, 8});
  EXPECT_EQ(place(layout, 1, 3), (Place{3, 2, 2, 2}));  // 6 to 8 and 15 to 17, both partly on node 1
  EXPECT_EQ(layout.crossing(1, 3), 1);
}

TEST(NodeLayouts, NoGroupLeavesTheOnlyNode) {
  const NodeLayout layout = nodes_of({8});
  EXPECT_EQ(place(layout, 6, 2), (Place{2, 2, 1, 1}));  // the ends of a pipeline of 4 beside tp 2
  EXPECT_EQ(layout.crossing(6, 2), 0);
}

TEST(NodeLayouts, UnequalNodesCountTheGroupThatIsWorstOff) {
  const NodeLayout layout = nodes_of({8, 4});
  EXPECT_EQ(place(layout, 1, 4), (Place{4, 4, 1, 1}));    // no group crosses
  EXPECT_EQ(place(layout, 1, 6), (Place{6, 4, 1, 2}));    // 6 to 11 is on both nodes
  EXPECT_EQ(place(layout, 1, 12), (Place{12, 8, 1, 2}));  // one group of all
  EXPECT_EQ(place(layout, 4, 3), (Place{3, 2, 4, 2}));    // 0, 4, 8 and three others
  EXPECT_EQ(layout.crossing(4, 3), 4);
  EXPECT_EQ(layout.crossing(1, 12), 1);
  EXPECT_EQ(layout.crossing(1, 4), 0);
  EXPECT_EQ(layout.node_of(8), 1);
  EXPECT_EQ(layout.count(), 2);
  EXPECT_EQ(layout.least(), 4);
  EXPECT_EQ(layout.most(), 8);
}

// The second node computes half as fast as the first one, or its four devices share two cores.
TEST(NodeLayouts, SpeedsCountTheCoresOfTheNode) {
  Cluster cluster{.nodes = {{.count = 1, .devices = 4, .cores = 4}, {.count = 1, .devices = 4, .cores = 2}}};
  EXPECT_EQ(slowness(cluster), 2);
  EXPECT_EQ(NodeLayout(cluster).slowest(0, 4), 2);
  EXPECT_EQ(NodeLayout(cluster).slowest(3, 2), 1);
  cluster.nodes[0].speed = 0.5;
  EXPECT_EQ(slowness(cluster), 2);
  EXPECT_FALSE(NodeLayout(cluster).has_speeds());
  cluster.nodes[0].speed = 0.25;
  EXPECT_EQ(slowness(cluster), 4);
  EXPECT_EQ(NodeLayout(cluster).slowest(4, 4), 2);
}

}  // namespace
}  // namespace tutti::planning
