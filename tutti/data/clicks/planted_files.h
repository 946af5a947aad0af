#pragma once
// Planted clicks as files: packed, or as Criteo's raw text, so that the whole path from there on can be tried.
#include <cstdint>
#include <functional>
#include <string>

#include "tutti/data/clicks/planted.h"

namespace tutti {

struct PlantedFileOptions {
  std::string output;  // packed: a folder, text: a file; neither may exist yet
  std::uint64_t samples = 0;
  int days = 7;                                                // packed: days of equal length, as Kaggle's text is cut
  int threads = 0;                                             // 0: as many as there are cores
  std::function<void(double share)> progress = [](double) {};  // by one thread at a time
};

// The row of a table in text: an id of 8 hexadecimal digits, different for each row.
std::uint32_t id_of_row(int table, std::int64_t row);

// Samples [0, options.samples). kInvalidArgument, kSystem; then nothing is left of the output.
Status write_planted_packed(const PlantedClicks& clicks, const PlantedFileOptions& options);
// With 13 dense features and 26 tables, which is what the text holds. A count of 0 is written as a missing value every
// other time. `tutti data criteo` makes the same samples of it, with rows in the order of their first appearance.
Status write_planted_text(const PlantedClicks& clicks, const PlantedFileOptions& options);

}  // namespace tutti
