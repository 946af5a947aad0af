#pragma once
// Clicks whose rows follow profiles of traces, number for number those of dlrm_s_pytorch.py's RandomDataset with
// data_generation="synthetic".
#include <memory>
#include <string>
#include <vector>

#include "tutti/data/clicks/drawn.h"

namespace tutti {

struct SyntheticClickOptions : DrawnClickOptions {
  std::string trace_file = "./input/dist_emb_j.log";  // --data-trace-file: 'j' stands for the table's number
  bool padding = false;                               // --data-trace-enable-padding
};

// As in the reference the stack starts empty with every bag, and lines that a table has no row for are taken modulo its
// rows; of those a warning is logged once for each table. kNotFound, kCorrupt: the profile of a table, in words.
Result<std::unique_ptr<ClickSource>> make_synthetic_clicks(const SyntheticClickOptions& options);

// The profile of a table: the last 'j' of the file's name that stands by itself is replaced by the table's number;
// where there is none, all tables have the same.
std::string trace_file_of(const std::string& pattern, std::size_t table);

}  // namespace tutti
