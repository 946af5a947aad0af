#pragma once
// Samples on their way into a packed file, as columns in memory.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

struct ClickColumns {
  ClickColumns(std::size_t dense, std::size_t tables) : dense_features(dense), ids(tables) {}

  std::size_t dense_features;
  std::vector<std::int32_t> labels;
  std::vector<std::int32_t> dense;              // a row of dense_features for each sample
  std::vector<std::vector<std::uint32_t>> ids;  // of each table

  std::size_t samples() const { return labels.size(); }
  void clear() {
    labels.clear();
    dense.clear();
    for (auto& column : ids) column.clear();
  }
};

}  // namespace tutti
