#pragma once
// The units of cluster.toml and of data sheets, in seconds, bytes and operations per second.

namespace tutti::planning::units {

inline constexpr double kNanosecond = 1e-9;
inline constexpr double kMicrosecond = 1e-6;
inline constexpr double kGiB = 1 << 30;
inline constexpr double kGigabyte = 1e9;
inline constexpr double kTeraflop = 1e12;

}  // namespace tutti::planning::units
