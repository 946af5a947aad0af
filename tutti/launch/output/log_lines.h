#pragma once
// A line of a rank's output, as a log has it: how grave it is, and as JSON. Pure functions.
#include <optional>
#include <string>
#include <string_view>

#include "tutti/base/error.h"

namespace tutti {

enum class LineLevel { kDebug, kInfo, kWarn, kError };
const char* name(LineLevel level);
// "debug", "info", "warn", "error"; else kUsage that names `option`.
Result<LineLevel> parse_line_level(std::string_view text, const std::string& option);

// What a line says of itself, near its beginning: "WARNING:root:...", "[error] ...", "2026-11-21 ... WARN ...",
// "E1121 12:00:00.000 file.cc:3] ..." (glog), "PeerLost: ..." of our own errors. None: nothing.
std::optional<LineLevel> level_of_line(std::string_view line);

struct LogLine {
  std::string_view line;
  int rank = -1;                    // -1: of no rank
  std::string_view stream;          // "stdout", "stderr"
  std::string_view from = "tutti";  // who says it, where no rank does
  std::optional<LineLevel> level;
};
// Of the system's clock, now; since 1970 in UTC.
std::int64_t microseconds_since_epoch();
// {"time": "2026-11-21T12:00:00.123Z", "rank": 0, "stream": "stdout", "level": "warn", "line": "..."}, without '\n';
// bytes that are not UTF-8 are replaced. `microseconds`: since 1970.
std::string json_line(const LogLine& line, std::string_view host, int attempt, std::int64_t microseconds);
// Whether that made it.
bool is_json_line(std::string_view line);

}  // namespace tutti
