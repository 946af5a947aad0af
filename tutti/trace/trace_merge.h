#pragma once
// Chrome traces of several ranks, or of several programs, put together on one time line.
#include <cstddef>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

struct MergedTrace {
  std::size_t files = 0, events = 0;
  std::vector<std::string> notes;  // what somebody should know: files left out and why, times that could not be aligned
};

// Reads the files, which may be gzip files, and writes all their events into one. Files that say which moment their
// time 0 is ("wall clock of 0" in otherData, as write_rank_trace() writes it, or baseTimeNanoseconds, as PyTorch 2.x
// does) are moved onto the time line of the first such. Others keep their times, with a note. Where two files have the
// same process number, the later one's is given a new one. Holds one file in memory at a time. Errors, which leave the
// output as it was: it is one of the files (kInvalidArgument), no file can be used (kNotFound). The output cannot be
// written.
Result<MergedTrace> merge_traces(const std::vector<std::string>& files, const std::string& output);

// The files of a folder whose name ends in .json or .json.gz, by name.
Result<std::vector<std::string>> traces_in(const std::string& folder);

}  // namespace tutti
