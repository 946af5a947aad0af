// Lines of Criteo's text: every line is taken or refused in words, none is lost, and what is taken survives being
// written in its plainest form.
#include <algorithm>
#include <cstdio>

#include "tests/fuzz/targets.h"
#include "tutti/data/clicks/criteo_text.h"

namespace tutti::fuzz {
namespace {

std::string written(const CriteoSample& sample) {
  std::string line = std::to_string(sample.label);
  for (const std::int32_t count : sample.dense) line += "\t" + std::to_string(count);
  for (const std::uint32_t id : sample.ids) {
    char hex[16];
    std::snprintf(hex, sizeof hex, "\t%x", id);
    line += hex;
  }
  return line;
}

}  // namespace

void criteo_text(Input input) {
  const std::string text = text_of(input);
  std::string_view left = text;
  std::size_t taken = 0;
  while (!left.empty()) {
    const std::size_t before = left.size();
    CriteoSample sample, again;
    BadLine bad;
    const bool good = take_criteo_line(left, sample, bad);
    promise(left.size() < before, "a line is taken off");
    ++taken;
    if (!good) {
      promise(!bad.expected.empty() && !bad.found.empty(), "a bad line says what is wrong");
      promise(bad.column >= 0 && bad.column <= kCriteoColumns, "the column is one of the line");
      continue;
    }
    const std::string plain = written(sample);
    std::string_view rest = plain;
    promise(take_criteo_line(rest, again, bad) && rest.empty(), "a sample survives being written");
    promise(written(again) == plain, "and is the same");
  }
  const auto newlines = std::size_t(std::count(text.begin(), text.end(), '\n'));
  promise(taken == newlines + (!text.empty() && text.back() != '\n'), "as many lines as there are");
}

}  // namespace tutti::fuzz
