#include "tutti/base/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <numeric>

namespace tutti {

namespace {

// Three significant digits, no trailing zeros: 12.4, 0.17, 52.
std::string short_number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.*f", value >= 100 || value == std::floor(value) ? 0 : value >= 10 ? 1 : 2, value);
  std::string out = text;
  if (out.find('.') != std::string::npos) {
    while (out.back() == '0') out.pop_back();
    if (out.back() == '.') out.pop_back();
  }
  return out;
}

// A number followed by a unit: the two parts of "1.5h".
std::optional<std::pair<double, std::string_view>> number_and_unit(std::string_view text) {
  text = trim(text);
  const size_t end = text.find_first_not_of("0123456789.");
  auto number = parse_double(text.substr(0, end));
  if (!number) return std::nullopt;
  return std::pair(*number, end == std::string_view::npos ? std::string_view() : trim(text.substr(end)));
}

}  // namespace

std::string seconds_text(double seconds) {
  if (seconds < 0) return "-" + seconds_text(-seconds);
  if (!(seconds < 1e12)) {  // too long for hours to mean anything, infinite, or NaN
    char text[32];
    std::snprintf(text, sizeof text, "%.3g s", seconds);
    return text;
  }
  if (seconds >= 3600) {
    const auto minutes = std::int64_t(seconds / 60);
    return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
  }
  if (seconds >= 119.5) {
    const int whole = int(std::lround(seconds));
    return std::to_string(whole / 60) + " min" + (whole % 60 ? " " + std::to_string(whole % 60) + " s" : "");
  }
  // A value that would round to 1000 uses the next unit.
  if (seconds >= 0.9995 || seconds == 0) return short_number(seconds) + " s";
  if (seconds >= 0.9995e-3) return short_number(seconds * 1e3) + " ms";
  return short_number(seconds * 1e6) + " us";
}

std::string bytes_text(std::uint64_t bytes) {
  static constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  double value = double(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) value /= 1024, ++unit;
  return short_number(value) + " " + kUnits[unit];
}

std::string ranks_text(std::span<const int> ranks) {
  std::string out;
  for (size_t i = 0; i < ranks.size();) {
    size_t j = i;
    while (j + 1 < ranks.size() && ranks[j + 1] == ranks[j] + 1) ++j;
    if (j == i + 1) j = i;
    if (!out.empty()) out += ", ";
    out += std::to_string(ranks[i]);
    if (j > i) out += "-" + std::to_string(ranks[j]);
    i = j + 1;
  }
  return out;
}

std::string ranks_words(std::span<const int> ranks) {
  return (ranks.size() == 1 ? "rank " : "ranks ") + ranks_text(ranks);
}

std::string join(std::span<const std::string> parts, std::string_view separator) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) out.append(i ? separator : std::string_view()).append(parts[i]);
  return out;
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.emplace_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r\n") - begin + 1);
}

std::optional<std::int64_t> parse_int(std::string_view text) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || text.empty()) return std::nullopt;
  return value;
}

std::optional<double> parse_double(std::string_view text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [at, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || at != end || text.empty() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<double> parse_seconds(std::string_view text) {
  const auto parts = number_and_unit(text);
  if (!parts) return std::nullopt;
  const auto [value, unit] = *parts;
  if (unit.empty() || unit == "s") return value;
  if (unit == "ms") return value * 1e-3;
  if (unit == "us") return value * 1e-6;
  if (unit == "min" || unit == "m") return value * 60;
  if (unit == "h") return value * 3600;
  return std::nullopt;
}

std::optional<std::uint64_t> parse_bytes(std::string_view text) {
  const auto parts = number_and_unit(text);
  if (!parts) return std::nullopt;
  auto [value, unit] = *parts;
  static constexpr std::string_view kPrefixes = "KMGTP";
  if (!unit.empty() && unit != "B") {
    const size_t power = kPrefixes.find(unit[0] >= 'a' ? char(unit[0] - 32) : unit[0]);
    if (power == std::string_view::npos) return std::nullopt;
    const std::string_view rest = unit.substr(1);
    if (!rest.empty() && rest != "B" && rest != "iB") return std::nullopt;
    value *= std::pow(1024.0, double(power + 1));
  }
  if (value >= 9e18) return std::nullopt;
  return std::uint64_t(value);
}

namespace {

// The number of insertions, deletions, substitutions and swaps of adjacent letters that turn one word into the other
// (optimal string alignment).
size_t edits(std::string_view from, std::string_view to) {
  std::vector<size_t> before(to.size() + 1), row(to.size() + 1), next(to.size() + 1);
  std::iota(row.begin(), row.end(), size_t(0));
  for (size_t i = 0; i < from.size(); ++i) {
    next[0] = i + 1;
    for (size_t j = 0; j < to.size(); ++j) {
      next[j + 1] = std::min({next[j] + 1, row[j + 1] + 1, row[j] + (from[i] != to[j])});
      const bool swapped = i > 0 && j > 0 && from[i] == to[j - 1] && from[i - 1] == to[j];
      if (swapped) next[j + 1] = std::min(next[j + 1], before[j - 1] + 1);
    }
    before.swap(row);
    row.swap(next);
  }
  return row.back();
}

}  // namespace

std::optional<std::string> nearest(std::string_view given, std::span<const std::string> known) {
  std::optional<std::string> best;
  const size_t most = given.size() <= 4 ? 1 : std::max<size_t>(2, given.size() / 3);
  size_t least = std::min(given.size(), most + 1);  // some letters must agree
  for (const std::string& candidate : known) {
    const size_t distance = edits(given, candidate);
    if (distance < least) least = distance, best = candidate;
  }
  return best;
}

std::string did_you_mean(const std::optional<std::string>& near, std::string otherwise) {
  return near ? "did you mean " + *near + "?" : std::move(otherwise);
}

// A terminal that interprets bytes as Latin-1 treats a lone 0x9b like ESC [. So bytes that are not UTF-8 are replaced,
// and so are overlong forms of that character, which some decoders accept.

namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return std::uint32_t(static_cast<unsigned char>(text[i])); };
  if (byte(0) < 0x80) return {byte(0), 1, true};
  const std::size_t bytes = byte(0) >= 0xf8 ? 0 : byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : byte(0) >= 0xc0 ? 2 : 0;
  if (bytes == 0 || bytes > text.size()) return {};
  std::uint32_t code = byte(0) & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes, true};
}

bool is_obeyed(std::uint32_t code) {
  const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const bool reorders = code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                        (code >= 0x2066 && code <= 0x2069);
  const bool breaks_lines = code == 0x2028 || code == 0x2029;
  return control || reorders || breaks_lines;
}

}  // namespace

std::string sanitize(std::string_view text) {
  std::string tamed;
  tamed.reserve(text.size());
  while (!text.empty()) {
    const Character next = first_of(text);
    const bool passes = next.valid && (!is_obeyed(next.code) || next.code == '\n' || next.code == '\t');
    tamed += passes ? text.substr(0, next.bytes) : "?";
    text.remove_prefix(next.bytes);
  }
  return tamed;
}

std::string sanitize_line(std::string_view text) {
  std::string tamed = sanitize(text);
  std::replace_if(
      tamed.begin(), tamed.end(), [](char c) { return c == '\n' || c == '\t'; }, '?');
  return tamed;
}

std::string quoted_name(std::string_view name) {
  std::string out = "\"";
  for (const unsigned char c : name.substr(0, 80))
    out += c < 0x20 || c == 0x7f ? fmt::format("\\x{:02x}", c) : std::string(1, char(c));
  return out + (name.size() > 80 ? "...\"" : "\"");
}

}  // namespace tutti
