#include "tutti/planning/training/node_layout.h"

#include <algorithm>
#include <cstdint>

#include "tutti/planning/training/device_time.h"

namespace tutti::planning {
namespace {

// The first rank of the group of a rank.
int first_of_group(int rank, int stride, int size) {
  const std::int64_t all = std::int64_t(stride) * size;
  return int(rank / all * all) + rank % stride;
}

}  // namespace

NodeLayout::NodeLayout(const Cluster& cluster) {
  int nodes = 0;
  for (const ClusterNodes& same : cluster.nodes) {
    most_ = std::max(most_, same.devices);
    least_ = least_ == 0 ? same.devices : std::min(least_, same.devices);
    for (int i = 0; i < same.count; ++i) node_of_.insert(node_of_.end(), std::size_t(same.devices), nodes++);
    speeds_.insert(speeds_.end(), std::size_t(same.count), 1 / slowness(cluster, same));
  }
  const double least = speeds_.empty() ? 1 : *std::min_element(speeds_.begin(), speeds_.end());
  for (double& speed : speeds_) speed /= least;
  if (std::all_of(speeds_.begin(), speeds_.end(), [](double speed) { return speed == 1; })) speeds_.clear();
}

double NodeLayout::slowest(int first, int size) const {
  if (!has_speeds()) return 1;
  const auto of = [&](int device) { return speeds_.begin() + node_of(device); };
  return *std::min_element(of(first), of(first + size - 1) + 1);
}

GroupPlace NodeLayout::place(int stride, int size) const { return size == 1 ? GroupPlace{} : axis(stride, size).place; }

int NodeLayout::crossing(int stride, int size) const { return axis(stride, size).crossing; }

const NodeLayout::Axis& NodeLayout::axis(int stride, int size) const {
  const auto [found, is_new] = axes_.try_emplace({stride, size});
  if (is_new) found->second = {count_place(stride, size), count_crossing(stride, size)};
  return found->second;
}

GroupPlace NodeLayout::count_place(int stride, int size) const {
  const int devices = int(node_of_.size());
  GroupPlace place{.size = size, .here = 1, .at_once = 0, .nodes = 1};
  std::vector<int> of_group(node_of_.size());  // ranks of a group on this node, at the group's first rank
  const auto crosses = [&](int first, int node) {
    for (int i = 0, rank = first; i < size && rank < devices; ++i, rank += stride)
      if (node_of_[std::size_t(rank)] != node) return true;
    return false;
  };
  for (int begin = 0, end = 0; begin < devices; begin = end) {
    const int node = node_of_[std::size_t(begin)];
    while (end < devices && node_of_[std::size_t(end)] == node) ++end;
    int at_once = 0;
    for (int rank = begin; rank < end; ++rank) {
      const int first = first_of_group(rank, stride, size);
      if (!crosses(first, node)) continue;
      const int here = ++of_group[std::size_t(first)];
      place.here = std::max(place.here, here);
      at_once += here == 1;
    }
    for (int rank = begin; rank < end; ++rank) of_group[std::size_t(first_of_group(rank, stride, size))] = 0;
    place.at_once = std::max(place.at_once, at_once);
  }
  for (int first = 0; first < devices; ++first) {
    if (first_of_group(first, stride, size) != first) continue;
    int nodes = 1;
    for (int rank = first + stride, i = 1; i < size && rank < devices; ++i, rank += stride)
      nodes += node_of_[std::size_t(rank)] != node_of_[std::size_t(rank - stride)];
    place.nodes = std::max(place.nodes, double(nodes));
  }
  return place.at_once == 0 ? GroupPlace{size, size, 1, 1} : place;
}

int NodeLayout::count_crossing(int stride, int size) const {
  const int devices = int(node_of_.size());
  int most = 0, here = 0;
  for (int rank = 0; rank + stride < devices; ++rank) {
    if (rank > 0 && node_of_[std::size_t(rank)] != node_of_[std::size_t(rank - 1)]) here = 0;
    const bool is_last = rank / stride % size == size - 1;
    if (!is_last && node_of_[std::size_t(rank)] != node_of_[std::size_t(rank + stride)]) most = std::max(most, ++here);
  }
  return most;
}

}  // namespace tutti::planning
