#pragma once
// Criteo's text into a packed file: parallel, in bounded memory, and nothing skipped in silence.
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/data/clicks/shuffle.h"

namespace tutti {

struct CriteoProgress {
  const char* doing;    // "reading", "numbering ids", "shuffling"
  double share;         // of this, from 0 to 1
  std::uint64_t bytes;  // of text, read so far
};

struct CriteoOptions {
  // Plain or gzip. One file is cut into `days` days of equal length; several are a day each.
  std::vector<std::string> inputs;
  std::string output;  // a folder, which must not exist yet
  int days = 7;
  std::int64_t max_ind_range = -1;  // above 0: ids are taken modulo it before they are numbered
  double sub_sample_rate = 0;       // above 0: this share of the samples that were not clicked is dropped, at random
  Randomize randomize = Randomize::kTotal;
  std::uint32_t seed = 123;          // of numpy's generator: first what is dropped is drawn, then the order
  std::uint64_t skip_bad_lines = 0;  // so many malformed lines are left out; one more is an error
  int threads = 0;                   // 0: as many as there are cores
  std::uint64_t memory = std::uint64_t(2) << 30;
  std::function<void(const CriteoProgress&)> progress = [](const CriteoProgress&) {};  // by one thread at a time
};

struct CriteoReport {
  std::uint64_t lines = 0, samples = 0, clicked = 0, dropped = 0;  // dropped: by sub_sample_rate
  std::uint64_t text_bytes = 0;
  std::uint64_t bad_lines = 0;
  std::vector<std::string> bad_line_words;  // of the first ten
  std::vector<std::uint64_t> samples_of_days, rows;
  double seconds = 0;
};

// kNotFound, kSystem; kCorrupt: a malformed line (file, line, column, what was there), cut-off or damaged compressed
// data; kInvalidArgument: options that contradict, an output that is there. After an error nothing is left of the
// output.
//
// `output` then holds clicks.bin (docs/reference/formats.md) and ids_00.bin, ids_01.bin, ...: the ids of each column in
// the order of their numbers, four bytes each.
Result<CriteoReport> pack_criteo(const CriteoOptions& options);

}  // namespace tutti
