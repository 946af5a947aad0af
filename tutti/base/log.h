#pragma once
// Log lines on standard error: "[tutti] text", or "[tutti rank 3] text" once the rank is known. TUTTI_LOG sets the
// level (debug, info, warn, error, off; default info) and topics to log in more detail: "select" or "warn,select".
// Threads: any thread may call these functions.
#include <string>
#include <string_view>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"

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

// Limits warnings that other machines can cause without limit. Logs at most five in ten seconds, then the number of the
// others. Threads: one at a time.
class FewWarnings {
 public:
  explicit FewWarnings(std::string kind) : kind_(std::move(kind)) {}  // "connections that the store turned away"
  void warn(std::string_view text, Clock::time_point time = now());

 private:
  const std::string kind_;
  Clock::time_point since_{};  // start of the current ten seconds
  std::size_t count_ = 0;      // in the current ten seconds
};

// kUsage: TUTTI_LOG contains an unknown word. For programs that can refuse to start.
Status check_setting();
// Warns of an unknown word, once per process. For programs that start anyway.
void tell_of_setting();

}  // namespace tutti::log
