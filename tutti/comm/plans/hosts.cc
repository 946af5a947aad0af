#include "tutti/comm/plans/hosts.h"

#include <algorithm>
#include <map>

namespace tutti::comm {

Hosts::Hosts(std::span<const int> host_of) {
  std::map<int, int> numbers;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    const int host = numbers.try_emplace(host_of[rank], int(numbers.size())).first->second;
    if (host == count()) ranks_on_.emplace_back();
    host_.push_back(host);
    place_.push_back(int(ranks_on_[host].size()));
    ranks_on_[host].push_back(int(rank));
  }
  for (const auto& ranks : ranks_on_) {
    fewest_ = fewest_ == 0 ? int(ranks.size()) : std::min(fewest_, int(ranks.size()));
    most_ = std::max(most_, int(ranks.size()));
  }
}

Hosts Hosts::of_sizes(std::span<const int> ranks) {
  std::vector<int> host_of;
  for (std::size_t host = 0; host < ranks.size(); ++host)
    host_of.insert(host_of.end(), std::size_t(ranks[host]), int(host));
  return Hosts(host_of);
}

}  // namespace tutti::comm
