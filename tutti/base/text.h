#pragma once
// Small words for people: durations, sizes, lists, and the nearest known name for a mistyped one.
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
// "0, 1, 5-9": ranks in ascending order, runs of three or more folded.
std::string ranks_text(std::span<const int> ranks);
// The same with its noun: "rank 3", "ranks 0, 1, 5-9".
std::string ranks_words(std::span<const int> ranks);
std::string join(std::span<const std::string> parts, std::string_view separator);
std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);
// A whole decimal number and nothing else; none if it does not fit.
std::optional<std::int64_t> parse_int(std::string_view text);
std::optional<double> parse_double(std::string_view text);
// "30s", "5min", "250ms", "1.5h"; a bare number is seconds.
std::optional<double> parse_seconds(std::string_view text);
// "64M", "1GiB", "4096": powers of 1024.
std::optional<std::uint64_t> parse_bytes(std::string_view text);
// The known name nearest to a mistyped one (edit distance at most a third of its length), or nothing.
std::optional<std::string> nearest(std::string_view given, std::span<const std::string> known);
// The hint made of it: "did you mean --model?", or `otherwise` where nothing is near.
std::string did_you_mean(const std::optional<std::string>& near, std::string otherwise = {});

}  // namespace tutti
