#pragma once
// One line of Criteo's text: a label, 13 whole numbers and 26 ids in hexadecimal, separated by TAB; any of the 39 may
// be missing. Malformed lines are never guessed at.
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/data/clicks/columns.h"

namespace tutti {

inline constexpr int kCriteoDense = 13, kCriteoTables = 26, kCriteoColumns = 1 + kCriteoDense + kCriteoTables;

struct BadLine {
  std::uint64_t line = 0;  // counted from 1
  int column = 0;          // counted from 1; 0: it has another number of columns
  std::string found;       // what stands there, cut to a few words
  std::string expected;
};
// "day_3: line 17, column 4 (integer 3): expected a whole number of at most 32 bits or nothing, found '1x'"
std::string to_string(const BadLine& bad, const std::string& file);

struct CriteoSample {
  std::int32_t label;
  std::int32_t dense[kCriteoDense];  // missing and negative ones: 0
  std::uint32_t ids[kCriteoTables];  // missing ones: 0
};

// Takes the line that starts at `text` (not empty) off its front, up to and with its newline; a CR before that belongs
// to it. True: `sample` is what it says. False: `bad` says why not, but for the line's number.
bool take_criteo_line(std::string_view& text, CriteoSample& sample, BadLine& bad);

}  // namespace tutti
