#pragma once
// Lines of a rank's output: split from the bytes of a pipe, their log level, and their form in JSON.
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/base/error.h"

namespace tutti::launch {

// Collects bytes until a line is complete. A line longer than kLongest is split into pieces of that size, so an endless
// line cannot take the agent's memory.
class LineSplitter {
 public:
  static constexpr std::size_t kLongest = 64 * 1024;
  using Sink = std::function<void(std::string_view line)>;  // without its '\n'

  void feed(std::string_view bytes, const Sink& sink);
  void flush(const Sink& sink);  // the partial last line, if any

 private:
  std::string partial_;
};

// The last lines of a worker, for the report of its failure.
class Tail {
 public:
  explicit Tail(std::size_t lines) : lines_(lines) {}
  void add(std::string_view line);
  const std::deque<std::string>& lines() const { return kept_; }

 private:
  static constexpr std::size_t kLongest = 2000;
  std::size_t lines_;
  std::deque<std::string> kept_;
};

// The log level of a line.
enum class LineLevel { kDebug, kInfo, kWarn, kError };
const char* name(LineLevel level);
// "debug", "info", "warn", "error"; else kUsage that names `option`.
Result<LineLevel> parse_line_level(std::string_view text, const std::string& option);

// The level that a line names near its beginning: "WARNING:root:...", "[error] ...", "2026-11-21 ... WARN ...",
// "E1121 12:00:00.000 file.cc:3] ..." (glog), "PeerLost: ..." of Tutti's errors. None: it names none.
std::optional<LineLevel> level_of_line(std::string_view line);

struct LogLine {
  std::string_view line;
  int rank = -1;                    // -1: not of a rank
  std::string_view stream;          // "stdout", "stderr"
  std::string_view from = "tutti";  // the program that printed it, if no rank did
  std::optional<LineLevel> level;
};
// The system clock, since 1970 in UTC.
std::int64_t microseconds_since_epoch();
// {"time": "2026-11-21T12:00:00.123Z", "rank": 0, "stream": "stdout", "level": "warn", "line": "..."}, without '\n';
// bytes that are not UTF-8 are replaced. `microseconds`: since 1970.
std::string json_line(const LogLine& line, std::string_view host, int attempt, std::int64_t microseconds);
// Whether json_line() made this line.
bool is_json_line(std::string_view line);

}  // namespace tutti::launch
