#pragma once
// One batch of a click dataset, or the part of it that one rank needs. A sample has dense features, one target (clicked
// or not, or the probability of it) and, for each embedding table, a bag of rows to look up.
//
// The parts of a batch have different owners: the dense rows and targets belong to the rank that trains on those
// samples, the lookups of a table to the rank that holds the table, and that one needs them for all samples.
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace tutti {

// The lookups of one table: the rows of sample s are indices[offsets[s]] up to, not including, indices[offsets[s + 1]].
struct Lookups {
  std::vector<std::int64_t> offsets;  // samples + 1 of them, from 0 to indices.size()
  std::vector<std::int64_t> indices;

  std::int64_t samples() const { return offsets.empty() ? 0 : std::int64_t(offsets.size()) - 1; }
};

// What is wanted of a batch.
struct BatchPart {
  std::int64_t begin = 0, end = 0;  // samples, counted within the batch, whose dense rows and targets are wanted
  std::vector<int> tables;          // whose lookups are wanted, for all samples of the batch

  static BatchPart whole(std::int64_t samples, std::size_t tables) {
    BatchPart part{.begin = 0, .end = samples, .tables = std::vector<int>(tables)};
    std::iota(part.tables.begin(), part.tables.end(), 0);
    return part;
  }
};

// Memory is kept from one read() to the next.
struct ClickBatch {
  std::int64_t samples = 0;         // of the whole batch
  std::int64_t begin = 0, end = 0;  // those whose dense rows and targets are here
  std::vector<float> dense;         // (end - begin) rows of ClickShape::dense_features
  std::vector<float> targets;       // end - begin
  std::vector<Lookups> lookups;     // in the order of BatchPart::tables
};

}  // namespace tutti
