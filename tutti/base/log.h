#pragma once
// Lines for people, on standard error: "[tutti] text", or "[tutti rank 3] text" once the rank is known. The level comes
// from TUTTI_LOG (debug, info, warn, error, off; default info), which may name topics as well, on which more is said:
// "select" or "warn,select". A word that is none of these is told about. Any thread may call these.
#include <string_view>

namespace tutti::log {

enum class Level { kDebug, kInfo, kWarn, kError };

inline constexpr std::string_view kTopics[] = {"select"};  // which algorithms a group uses between hosts
bool wants(std::string_view topic);

void set_rank(int rank);  // -1: no rank in the prefix
void write(Level level, std::string_view text);

inline void debug(std::string_view text) { write(Level::kDebug, text); }
inline void info(std::string_view text) { write(Level::kInfo, text); }
inline void warn(std::string_view text) { write(Level::kWarn, text); }
inline void error(std::string_view text) { write(Level::kError, text); }

}  // namespace tutti::log
