// Parsing the output needs no code in the rank, so it works with every Python and whatever hooks the program installs.
#include "tutti/launch/output/traceback.h"

#include <algorithm>
#include <array>
#include <utility>

#include "tutti/base/text.h"
#include "tutti/launch/output/lines.h"

namespace tutti::launch {
namespace {

constexpr std::string_view kHeader = "Traceback (most recent call last):";
constexpr std::array<std::string_view, 2> kChains = {
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:"};

constexpr std::size_t kFirstBytes = 2 * 1024, kLastBytes = 6 * 1024;  // of a traceback; the end says most
constexpr std::size_t kLongestLine = 1000;
constexpr std::size_t kMostOfAnException = 40;  // lines
constexpr std::size_t kMostAfter = 100;         // lines, after which the program has continued

// "[rank3]: "; 0: there is none.
std::size_t prefix_size(std::string_view line) {
  constexpr std::string_view kBegin = "[rank", kEnd = "]: ";
  if (!line.starts_with(kBegin)) return 0;
  const std::size_t end = line.find_first_not_of("0123456789", kBegin.size());
  const bool prefixed = end != std::string_view::npos && end > kBegin.size() && line.substr(end).starts_with(kEnd);
  return prefixed ? end + kEnd.size() : 0;
}

std::string without_colours(std::string_view line) {
  std::string plain;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t end = line.substr(at).starts_with("\033[") ? line.find_first_not_of("0123456789;", at + 2) : at;
    if (end != at && end != std::string_view::npos && line[end] == 'm')
      at = end + 1;
    else
      plain += line[at++];
  }
  return plain;
}

// Before the traceback of an exception that does not end the program.
bool announces_another(std::string_view line) {
  return line.starts_with("Exception ignored ") || line.starts_with("Exception in thread ");
}

bool chains(std::string_view line) { return std::find(kChains.begin(), kChains.end(), line) != kChains.end(); }

// The class of an exception for source text that does not compile.
bool is_syntax_error(std::string_view line) {
  return line.starts_with("SyntaxError") || line.starts_with("IndentationError") || line.starts_with("TabError");
}

}  // namespace

std::string plain_line(std::string_view line) {
  line.remove_prefix(prefix_size(line));
  return line.find('\033') == std::string_view::npos ? std::string(line) : without_colours(line);
}

void Traceback::add(std::string_view whole) {
  const bool prefixed = prefix_size(whole) > 0;
  const std::string line = plain_line(whole.substr(0, kLongestLine));
  const bool indented = line.empty() || line.front() == ' ';
  if (line == kHeader && announces_another(before_)) {
    state_ = State::kIgnored;
  } else if (line == kHeader) {
    if (!chains(before_) || head_.empty()) begin(prefixed);
    keep(line);
    exception_.clear();
    state_ = State::kFrames;
  } else if (state_ == State::kFrames) {
    keep(line);
    if (!indented) {
      state_ = State::kException;
      exception_ = line;
      lines_after_ = 0;
      if (only_syntax_error_ && !is_syntax_error(line)) begin(false), state_ = State::kOutside;
    }
  } else if (state_ == State::kIgnored) {
    if (!indented) state_ = State::kOutside;
  } else {
    add_outside(line, prefixed);
  }
  if (!line.empty()) before_ = line;
}

void Traceback::add_outside(const std::string& line, bool prefixed) {
  const bool file = line.starts_with("  File \"") && !before_.ends_with(':');  // a list of frames has a header
  if (state_ == State::kOutside && file) {
    begin(prefixed);
    keep(line);
    only_syntax_error_ = true;
    state_ = State::kFrames;
    return;
  }
  if (exception_.empty()) return;
  if (state_ == State::kException && !continues(line, prefixed)) state_ = State::kOutside;
  const bool of_it = line.empty() || line.front() == ' ' || line.front() == '\t' || prefixed;
  if (++lines_after_ > kMostAfter && !of_it)
    begin(false), state_ = State::kOutside;
  else if (state_ == State::kException && (lines_after_ < kMostOfAnException || chains(line)))
    keep(line);
}

// Whether a line after that of an exception is a part of its text.
bool Traceback::continues(const std::string& line, bool prefixed) const {
  if (line.empty()) return true;
  return prefixed == prefixed_ && !announces_another(line) && !level_of_line(line);
}

void Traceback::begin(bool prefixed) {
  head_.clear();
  tail_.clear();
  exception_.clear();
  tail_bytes_ = lost_ = lines_after_ = 0;
  prefixed_ = prefixed;
  only_syntax_error_ = false;
}

void Traceback::keep(const std::string& line) {
  if (tail_.empty() && head_.size() + line.size() < kFirstBytes) {
    head_ += line + "\n";
    return;
  }
  tail_.push_back(line);
  tail_bytes_ += line.size() + 1;
  for (; tail_bytes_ > kLastBytes; ++lost_) {
    tail_bytes_ -= tail_.front().size() + 1;
    tail_.pop_front();
  }
}

std::string Traceback::message() const {
  if (exception_.empty()) return {};
  std::string text = exception_ + "\n" + head_;
  if (lost_ > 0) text += "  ... (" + std::to_string(lost_) + " lines skipped)\n";
  for (const std::string& line : tail_) text += line + "\n";
  return std::string(trim(text));
}

}  // namespace tutti::launch
