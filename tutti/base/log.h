#pragma once
// Lines for people, on standard error: "[tutti] text", or "[tutti rank 3] text" once the rank is known. The level comes
// from TUTTI_LOG (debug, info, warn, error, off; default info), which may name topics as well, on which more is said:
// "select" or "warn,select". A word that is none of these is told about. Any thread may call these.
#include <string>
#include <string_view>

#include "tutti/base/clock.h"

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

// Warnings that somebody else can cause as often as they like: at most five in ten seconds, and after that how many
// more there would have been. Threads: one at a time.
class FewWarnings {
 public:
  explicit FewWarnings(std::string kind) : kind_(std::move(kind)) {}  // "connections that the store turned away"
  void warn(std::string_view text, Clock::time_point time = now());

 private:
  const std::string kind_;
  Clock::time_point since_{};  // of these ten seconds
  std::size_t count_ = 0;      // in them
};

}  // namespace tutti::log
