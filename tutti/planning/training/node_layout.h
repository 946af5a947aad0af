#pragma once
// Which node each device of a cluster is on, and so where the ranks of a group are. Ranks are numbered node by node, in
// the order of Cluster::nodes. Nodes may differ in size, and groups need not divide them. One thread at a time: answers
// are kept.
#include <cstddef>
#include <map>
#include <utility>
#include <vector>

#include "tutti/planning/training/cluster.h"

namespace tutti::planning {

// Where the ranks of a group are. Groups along an axis consist of ranks with a fixed stride; where they differ, each
// figure is that of the group that is worst off.
struct GroupPlace {
  int size = 1;
  int here = 1;      // ranks of the group on one node
  int at_once = 1;   // groups along this axis that share the cards of a node, all at the same time
  double nodes = 1;  // that the group is on
  bool is_inside() const { return here == size; }
};

class NodeLayout {
 public:
  explicit NodeLayout(const Cluster& cluster);

  int most() const { return most_; }    // devices of the largest node
  int least() const { return least_; }  // and of the smallest
  int count() const { return node_of_.empty() ? 0 : node_of_.back() + 1; }
  int node_of(int device) const { return node_of_[std::size_t(device)]; }
  // The speed of the slowest of `size` devices from `first` on, where that of the slowest of all is 1.
  double slowest(int first, int size) const;
  bool has_speeds() const { return !speeds_.empty(); }  // they are not all the same
  // Groups of `size` ranks that are `stride` apart.
  GroupPlace place(int stride, int size) const;
  // Devices of one node that send to another node, where each of `size` ranks, `stride` apart, sends to the next one.
  int crossing(int stride, int size) const;

 private:
  struct Axis {
    GroupPlace place;
    int crossing = 0;
  };
  const Axis& axis(int stride, int size) const;
  GroupPlace count_place(int stride, int size) const;
  int count_crossing(int stride, int size) const;

  int most_ = 0, least_ = 0;
  std::vector<int> node_of_;    // of each device
  std::vector<double> speeds_;  // of each node; empty if all are the same
  // By stride and size: to count passes over all devices, and a search asks for few axes many times.
  mutable std::map<std::pair<int, int>, Axis> axes_;
};

}  // namespace tutti::planning
