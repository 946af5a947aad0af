#pragma once
// Monotonic time. Wall-clock time is for log lines only and is never compared between hosts.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

namespace tutti {

using Clock = std::chrono::steady_clock;
using Duration = std::chrono::nanoseconds;

inline Clock::time_point now() { return Clock::now(); }
inline double to_seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
// At most 100 years. A Duration holds 292 years, and a deadline adds it to the present.
inline Duration from_seconds(double seconds) {
  constexpr double kMost = 100 * 365.25 * 86400;
  return Duration(std::int64_t(std::clamp(seconds, -kMost, kMost) * 1e9));
}
inline double seconds_since(Clock::time_point begin) { return to_seconds(now() - begin); }

// "2026-11-20 21:04:05.123", local time.
std::string wall_clock_text();

}  // namespace tutti
