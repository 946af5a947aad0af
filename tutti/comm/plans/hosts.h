#pragma once
// Which ranks of a group share a host. An immutable value, made once per group, for plans and the simulator.
#include <span>
#include <vector>

namespace tutti::comm {

class Hosts {
 public:
  Hosts() = default;  // no ranks
  // host_of[r] is any number that identifies the host of rank r. Hosts are renumbered from 0 by their first ranks.
  explicit Hosts(std::span<const int> host_of);
  // `ranks[h]` ranks on host h; ranks are numbered host by host.
  static Hosts of_sizes(std::span<const int> ranks);

  int ranks() const { return int(host_.size()); }
  int count() const { return int(ranks_on_.size()); }
  int host_of(int rank) const { return host_[rank]; }
  int place_of(int rank) const { return place_[rank]; }                         // index among the ranks of its host
  const std::vector<int>& ranks_on(int host) const { return ranks_on_[host]; }  // ascending
  int fewest() const { return fewest_; }                                        // ranks on the smallest host
  int most() const { return most_; }
  bool same_host(int a, int b) const { return host_[a] == host_[b]; }

 private:
  std::vector<int> host_, place_;  // by rank
  std::vector<std::vector<int>> ranks_on_;
  int fewest_ = 0, most_ = 0;
};

}  // namespace tutti::comm
