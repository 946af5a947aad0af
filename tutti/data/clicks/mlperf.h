#pragma once
// Clicks from MLPerf's binary form of Criteo's data: 40 little-endian int32 a sample, the label, 13 counts and 26 ids.
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/data/clicks/source.h"

namespace tutti {

struct MlperfClickOptions {
  std::string path;
  std::vector<std::int64_t> rows;  // of each of the 26 tables
  std::int64_t batch_size = 1;
  std::int64_t most_batches = 0;    // above 0: so many at most
  std::int64_t max_ind_range = -1;  // above 0: ids are taken modulo it, and no table has more rows
  // Whole batches in another order in each epoch (--mlperf-bin-shuffle).
  std::optional<std::uint64_t> shuffle_seed;
};

// Counts x are given as log(x + 1), a sample has one row of each table. kNotFound, kCorrupt (a file that ends within a
// sample), kInvalidArgument. read() checks every row that it hands out: kCorrupt names sample, row, table, batch and
// file.
Result<std::unique_ptr<ClickSource>> open_mlperf_clicks(const MlperfClickOptions& options);

}  // namespace tutti
