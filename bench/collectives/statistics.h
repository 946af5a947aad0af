#pragma once
#include <cmath>
#include <vector>

namespace tutti::bench {

// Of ascending values, which are not none: the least that `share` of them do not exceed.
inline double percentile(const std::vector<double>& ascending, double share) {
  return ascending[std::size_t(std::ceil(share * double(ascending.size()))) - 1];
}

}  // namespace tutti::bench
