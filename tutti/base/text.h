#pragma once
// Text for messages: durations, sizes, lists of ranks, parsed numbers, suggestions for mistyped names, and text from
// other machines made safe for a terminal.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti {

// "0.17 us", "52 ms", "12.4 s", "3 min 10 s"
std::string seconds_text(double seconds);
// "512 B", "64 KiB", "1.5 GiB"
std::string bytes_text(std::uint64_t bytes);
// "0, 1, 5-9". `ranks` must be ascending. Three or more consecutive ranks become a range.
std::string ranks_text(std::span<const int> ranks);
// "rank 3", "ranks 0, 1, 5-9".
std::string ranks_words(std::span<const int> ranks);
std::string join(std::span<const std::string> parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
// Parses a complete decimal number. Empty if there is anything else or it does not fit.
std::optional<std::int64_t> parse_int(std::string_view text);
std::optional<double> parse_double(std::string_view text);
// "30s", "5min", "250ms", "1.5h"; a bare number is seconds.
std::optional<double> parse_seconds(std::string_view text);
// "64M", "1GiB", "4096": powers of 1024.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
// The known name nearest to a mistyped name (edit distance at most a third of its length), or nothing.
std::optional<std::string> nearest(std::string_view given, std::span<const std::string> known);
// "did you mean --model?", or `otherwise` if there is no near name.
std::string did_you_mean(const std::optional<std::string>& near, std::string otherwise = {});

// Makes foreign text safe for a terminal, as UTF-8. '?' replaces ASCII control characters except '\n' and '\t',
// U+0080-U+009F, bidirectional marks, overrides and isolates, and bytes that are not UTF-8.
std::string sanitize(std::string_view text);
// sanitize() for one line: '\n' and '\t' also become '?'.
std::string sanitize_line(std::string_view text);
// A name for an error message: in quotes, truncated after 80 bytes, ASCII control characters as \x1b.
std::string quoted_name(std::string_view name);

// The median of at least one value. For an even number, the larger one of the two in the middle.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace tutti
