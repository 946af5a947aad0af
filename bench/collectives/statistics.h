#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

namespace tutti::bench {

// Of the values, which are not none: the upper one of two in the middle.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// Of ascending values, which are not none: the least that `share` of them do not exceed.
inline double percentile(const std::vector<double>& ascending, double share) {
  return ascending[std::size_t(std::ceil(share * double(ascending.size()))) - 1];
}

}  // namespace tutti::bench
