#pragma once
// Traces of accesses to the lines of a table, and their profile: how long ago, counted in different lines, a line was
// last accessed. After R. Hassan, A. Harris, N. Topham, A. Efthymiou, "Synthetic Trace-Driven Simulation of Cache
// Memory" (AINA 2007), as dlrm_data_pytorch.py does it, whose files these are.
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/random.h"

namespace tutti {

// A stack distance of d means that the line is the d-th of those accessed last, counted from 1; 0 that it is new.
struct TraceProfile {
  std::vector<std::int64_t> lines;      // the different ones, in the order of their first access
  std::vector<std::int64_t> distances;  // those that occur, ascending from 0
  std::vector<double> cumulative;       // the probability of each or a smaller one
};

// `padding`: as many new accesses are added as there are accesses for a distance on the average, so that a short
// synthetic trace reaches all lines. The trace must not be empty.
TraceProfile profile_trace(std::span<const std::int64_t> trace, bool padding);

// Draws accesses by a profile's law. One thread at a time.
class TraceGenerator {
 public:
  // `profile` must live as long. `padding`: no access is new once as many lines have been accessed as
  // the largest distance.
  TraceGenerator(const TraceProfile& profile, bool padding) : profile_(profile), padding_(padding) {}

  std::int64_t next(NumpyRandom& random);  // takes one uniform draw
  void restart() {                         // as if nothing had been accessed yet
    new_accesses_ = 0;
    stack_.clear();
  }

 private:
  std::int64_t distance(double draw) const;

  const TraceProfile& profile_;
  bool padding_;
  std::size_t new_accesses_ = 0;
  std::vector<std::int64_t> stack_;  // lines by their last access, the latest last
};

// A profile's text: the lines, the distances, the cumulative probabilities, on a line each, separated by commas.
std::string to_text(const TraceProfile& profile);
// kCorrupt says which line and value of the text is wrong.
Result<TraceProfile> parse_trace_profile(std::string_view text);
Result<TraceProfile> read_trace_profile(const std::string& path);

// A trace's text: whole numbers separated by commas, spaces or newlines. kCorrupt names the number's place and the
// byte.
Result<std::vector<std::int64_t>> parse_trace(std::string_view text);
// `binary`: 64-bit little-endian numbers instead.
Result<std::vector<std::int64_t>> read_trace(const std::string& path, bool binary);
std::string to_text(std::span<const std::int64_t> trace);
std::string to_binary(std::span<const std::int64_t> trace);

}  // namespace tutti
