#pragma once
// A trace for chrome://tracing and https://ui.perfetto.dev, in the "Trace Event Format": a row of processes for each
// rank, a row for each of its threads. Of one rank, or of several put together by metrics/gather_trace.h, which also
// measures how far their clocks are apart.
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/trace/region.h"

namespace tutti {

// The position of a rank's time line on that of the file.
struct TraceRank {
  int rank = 0;
  std::string host;
  // Added to the rank's monotonic clock to get rank 0's, and how wrong that may be at most.
  Duration clock_offset{0}, clock_error{0};
};

// The events of one rank, as the elements of a JSON list, separated by commas. Times count from `origin`, of rank 0's
// clock.
std::string chrome_events(const Trace& trace, const TraceRank& rank, Clock::time_point origin);
// A file is the head, what chrome_events() returned for each rank, with commas between them, and the tail. The clocks'
// offsets stand in "otherData".
std::string chrome_trace_head(std::span<const TraceRank> ranks, double wall_clock_of_0 = 0);
inline constexpr const char* kWallClockOf0 = "wall clock of 0";  // in "otherData": seconds since 1970
inline constexpr const char* kChromeTraceComma = ",\n";
inline constexpr const char* kChromeTraceTail = "\n]}\n";
// The whole file of one rank alone, which begins at 0.
std::string chrome_trace(const Trace& trace, int rank = 0);

// The outcome of merge_traces().
struct MergedTrace {
  std::size_t files = 0, events = 0;
  std::vector<std::string> notes;  // for people: files that were skipped and why, times that could not be aligned
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
