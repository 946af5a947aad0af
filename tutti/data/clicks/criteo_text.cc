// A line is read once, from left to right, without looking for its end first: every column ends at a TAB but the last,
// which ends at a newline or at the end of the text. Nearly all bytes of the data are hexadecimal digits, eight to a
// column, so those are taken from a table, with the sign of a bad digit collected on the way.
//
// Only when something is wrong is the line looked at again, to say what.
#include "tutti/data/clicks/criteo_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace tutti {
namespace {

constexpr std::array<std::int8_t, 256> kHex = [] {
  std::array<std::int8_t, 256> values{};
  values.fill(-1);
  for (int i = 0; i < 10; ++i) values[std::size_t('0' + i)] = std::int8_t(i);
  for (int i = 0; i < 6; ++i) values[std::size_t('a' + i)] = values[std::size_t('A' + i)] = std::int8_t(10 + i);
  return values;
}();

bool ends_column(char c) { return c == '\t' || c == '\n' || c == '\r'; }

// Each take_ function reads one column and leaves `at` behind its last character; false: it is not what it should be.
bool take_whole_number(const char*& at, const char* end, std::int32_t& value) {
  const bool negative = at < end && *at == '-';
  const char* const digits = at += negative;
  std::int64_t number = 0;
  for (; at < end && *at >= '0' && *at <= '9'; ++at) {
    if (at - digits >= 10) return false;
    number = 10 * number + (*at - '0');
  }
  if (negative) number = -number;
  value = std::int32_t(std::max<std::int64_t>(number, 0));
  return number == std::int32_t(number) && !(negative && at == digits);
}

bool take_hex(const char*& at, const char* end, std::uint32_t& value) {
  if (end - at > 8 && ends_column(at[8]) && !ends_column(at[0])) {
    std::int32_t bad = 0;
    value = 0;
    for (int i = 0; i < 8; ++i) {
      const std::int32_t digit = kHex[std::uint8_t(at[i])];
      bad |= digit;
      value = value << 4 | std::uint32_t(digit & 15);
    }
    at += 8;
    if (bad >= 0) return true;
    at -= 8;  // a shorter one, and what comes after it: taken digit by digit
  }
  value = 0;
  for (int i = 0; at < end && kHex[std::uint8_t(*at)] >= 0; ++at, ++i) {
    if (i == 8) return false;
    value = value << 4 | std::uint32_t(kHex[std::uint8_t(*at)]);
  }
  return true;
}

// All 40 columns; -1, or the column (from 0) that is wrong.
int take_columns(const char*& at, const char* end, CriteoSample& sample) {
  if (at == end || (*at != '0' && *at != '1')) return 0;
  sample.label = *at++ - '0';
  for (int i = 0; i < kCriteoDense; ++i) {
    if (at == end || *at != '\t') return i;
    if (!take_whole_number(++at, end, sample.dense[i])) return 1 + i;
  }
  for (int i = 0; i < kCriteoTables; ++i) {
    if (at == end || *at != '\t') return kCriteoDense + i;
    if (!take_hex(++at, end, sample.ids[i])) return 1 + kCriteoDense + i;
  }
  if (at < end && *at == '\r') ++at;
  return at == end || *at == '\n' ? -1 : kCriteoColumns - 1;
}

const char* expected_at(int column) {
  if (column == 0) return "0 or 1";
  if (column <= kCriteoDense) return "a whole number of at most 32 bits, or nothing";
  return "at most 8 hexadecimal digits, or nothing";
}

void describe(std::string_view line, int column, BadLine& bad) {
  const auto columns = 1 + std::count(line.begin(), line.end(), '\t');
  bad.column = 0;
  if (columns != kCriteoColumns) {
    bad.expected = fmt::format("{} columns separated by TAB", kCriteoColumns);
    bad.found = fmt::format("{}", columns);
    return;
  }
  for (int i = 0; i < column; ++i) line.remove_prefix(line.find('\t') + 1);
  line = line.substr(0, line.find('\t'));
  bad.column = column + 1;
  bad.expected = expected_at(column);
  bad.found.clear();
  for (const char c : line.substr(0, 24)) {
    if (c >= ' ' && c < 127) {
      bad.found += c;
    } else {
      bad.found += fmt::format("\\x{:02x}", std::uint8_t(c));
    }
  }
  bad.found = fmt::format("'{}{}'", bad.found, line.size() > 24 ? "..." : "");
}

std::string words_of(int column) {
  if (column == 1) return "the label";
  if (column <= 1 + kCriteoDense) return fmt::format("integer {}", column - 1);
  return fmt::format("id {}", column - 1 - kCriteoDense);
}

}  // namespace

std::string to_string(const BadLine& bad, const std::string& file) {
  const std::string where =
      bad.column == 0 ? std::string() : fmt::format(", column {} ({})", bad.column, words_of(bad.column));
  return fmt::format("{}: line {}{}: expected {}, found {}", file, bad.line, where, bad.expected, bad.found);
}

bool take_criteo_line(std::string_view& text, CriteoSample& sample, BadLine& bad) {
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const char* at = begin;
  const int wrong = take_columns(at, end, sample);
  if (wrong < 0) {
    text.remove_prefix(std::size_t(at - begin) + (at < end ? 1 : 0));
    return true;
  }
  const std::size_t newline = text.find('\n');
  std::string_view line = text.substr(0, newline);
  text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  describe(line, wrong, bad);
  return false;
}

}  // namespace tutti
