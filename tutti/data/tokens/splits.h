#pragma once
// How datasets are divided into parts for training, validation and test, and mixed with one another: as Megatron-LM
// does both. Pure arithmetic; mistakes throw Exception.
#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tutti {

struct SplitRange {
  std::int64_t begin, end;  // end is not included
  bool operator==(const SplitRange&) const = default;
};
// "949,50,1": train, validation and test in these proportions; fewer numbers are filled up with 0. The bounds of
// `count` elements (sequences) are where the sums of the shares round to, halves to even.
std::array<SplitRange, 3> split_ranges(std::string_view split, std::int64_t count);

// Which dataset, and which of its samples, is each sample of a blend: always the dataset that lags most behind its
// weight. Weights are 0 or more, not all 0; they are divided by their sum.
struct BlendIndex {
  std::vector<std::int16_t> dataset;
  std::vector<std::int64_t> sample;
};
BlendIndex blend(std::span<const double> weights, std::int64_t samples);

}  // namespace tutti
