#pragma once
#include <algorithm>
#include <cstddef>
#include <vector>

namespace tutti {

// Of the values, which are not none: of two in the middle the upper one.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tutti
