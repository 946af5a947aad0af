#pragma once
// Clicks from a packed file (packed_format.h), mapped into memory: a rank touches the pages of its own dense rows and
// of its own tables' columns, nothing else.
#include <cstdint>
#include <memory>
#include <string>

#include "tutti/data/clicks/packed_format.h"
#include "tutti/data/clicks/source.h"

namespace tutti {

// As the reference splits Criteo: training on all days but the last, test on the first half of the last (rounded up),
// validation on its second half. A file of one day is all last day.
enum class ClickSplit { kAll, kTrain, kTest, kValidation };

struct PackedClickOptions {
  std::string path;  // the file, or the folder that `tutti data` made
  ClickSplit split = ClickSplit::kTrain;
  std::int64_t batch_size = 1;
  std::int64_t most_batches = 0;    // above 0: so many at most, from the first
  std::int64_t max_ind_range = -1;  // above 0: rows are taken modulo it, and no table has more
};

// Counts x are given as log(x + 1), a sample has one row of each table. kNotFound, kCorrupt (foreign or cut off, in
// words), kInvalidArgument (a split without samples). read() checks every row that it hands out: kCorrupt names sample,
// row, table, batch and file.
Result<std::unique_ptr<ClickSource>> open_packed_clicks(const PackedClickOptions& options);

// The header of a packed file or folder, checked against the file's size.
Result<PackedHeader> read_packed_header(const std::string& path);
// The samples [first, second) of a split.
std::pair<std::uint64_t, std::uint64_t> samples_of(const PackedHeader& header, ClickSplit split);
// The name of the packed file in a folder that `tutti data` made.
inline constexpr char kPackedFile[] = "clicks.bin";

}  // namespace tutti
