#include "tutti/launch/output/lines.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>
#include <utility>

namespace tutti::launch {
namespace {

constexpr std::size_t kHeadBytes = 80;

constexpr std::array<std::pair<std::string_view, LineLevel>, 14> kWords = {{{"TRACE", LineLevel::kDebug},
                                                                            {"DEBUG", LineLevel::kDebug},
                                                                            {"INFO", LineLevel::kInfo},
                                                                            {"NOTICE", LineLevel::kInfo},
                                                                            {"WARN", LineLevel::kWarn},
                                                                            {"WARNING", LineLevel::kWarn},
                                                                            {"ERROR", LineLevel::kError},
                                                                            {"CRITICAL", LineLevel::kError},
                                                                            {"FATAL", LineLevel::kError},
                                                                            {"debug", LineLevel::kDebug},
                                                                            {"info", LineLevel::kInfo},
                                                                            {"warning", LineLevel::kWarn},
                                                                            {"error", LineLevel::kError},
                                                                            {"critical", LineLevel::kError}}};

bool is_of_a_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// "I1121 12:00:00.123456 ..."
std::optional<LineLevel> glog_level(std::string_view line) {
  if (line.size() < 6 || line[5] != ' ') return {};
  for (int i = 1; i < 5; ++i)
    if (!std::isdigit(static_cast<unsigned char>(line[std::size_t(i)]))) return {};
  switch (line[0]) {
    case 'I':
      return LineLevel::kInfo;
    case 'W':
      return LineLevel::kWarn;
    case 'E':
    case 'F':
      return LineLevel::kError;
    default:
      return {};
  }
}

}  // namespace

void LineSplitter::feed(std::string_view bytes, const Sink& sink) {
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('\n');
    const std::size_t take = std::min(end == std::string_view::npos ? bytes.size() : end, kLongest - partial_.size());
    const bool whole = take == end;
    if (whole && partial_.empty()) {
      sink(bytes.substr(0, take));
    } else {
      partial_.append(bytes.substr(0, take));
      if (whole || partial_.size() == kLongest) {
        sink(partial_);
        partial_.clear();
      }
    }
    bytes.remove_prefix(take + (whole ? 1 : 0));
  }
}

void LineSplitter::flush(const Sink& sink) {
  if (partial_.empty()) return;
  sink(partial_);
  partial_.clear();
}

void Tail::add(std::string_view line) {
  if (kept_.size() == lines_) kept_.pop_front();
  kept_.emplace_back(line.substr(0, kLongest));
}

const char* name(LineLevel level) {
  switch (level) {
    case LineLevel::kDebug:
      return "debug";
    case LineLevel::kInfo:
      return "info";
    case LineLevel::kWarn:
      return "warn";
    case LineLevel::kError:
      return "error";
  }
  return "";
}

Result<LineLevel> parse_line_level(std::string_view text, const std::string& option) {
  for (const LineLevel level : {LineLevel::kDebug, LineLevel::kInfo, LineLevel::kWarn, LineLevel::kError})
    if (text == name(level)) return level;
  return Error{.code = Code::kUsage,
               .detail = option + " needs debug, info, warn or error, not '" + std::string(text) + "'"};
}

// A word in capitals counts anywhere in the head; one in small letters only in brackets or before a colon, where a log
// puts it, because "info" and "error" are also words of prose.
std::optional<LineLevel> level_of_line(std::string_view line) {
  if (const auto level = glog_level(line)) return level;
  const std::string_view head = line.substr(0, kHeadBytes);
  std::size_t nearest = std::string_view::npos;
  std::optional<LineLevel> found;
  for (const auto& [word, level] : kWords) {
    for (std::size_t at = head.find(word); at != std::string_view::npos; at = head.find(word, at + 1)) {
      const char before = at == 0 ? ' ' : head[at - 1];
      const std::size_t end = at + word.size();
      const char after = end < head.size() ? head[end] : ' ';
      if (is_of_a_word(before) || is_of_a_word(after) || at >= nearest) continue;
      const bool capitals = word[0] < 'a';
      if (!capitals && !(before == '[' && after == ']') && after != ':') continue;
      nearest = at;
      found = level;
    }
  }
  return found;
}

std::int64_t microseconds_since_epoch() {
  timespec at{};
  ::clock_gettime(CLOCK_REALTIME, &at);
  return std::int64_t(at.tv_sec) * 1000000 + at.tv_nsec / 1000;
}

std::string json_line(const LogLine& line, std::string_view host, int attempt, std::int64_t microseconds) {
  const std::time_t seconds = std::time_t(microseconds / 1000000);
  std::tm time{};
  gmtime_r(&seconds, &time);
  char text[32], stamp[48];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &time);
  std::snprintf(stamp, sizeof stamp, "%s.%06dZ", text, int(microseconds % 1000000));
  nlohmann::ordered_json json;
  json["time"] = stamp;
  json["host"] = host;
  if (line.rank >= 0) {
    json["attempt"] = attempt;
    json["rank"] = line.rank;
    json["stream"] = line.stream;
  } else {
    json["from"] = line.from;
  }
  if (line.level) json["level"] = name(*line.level);
  json["line"] = line.line;
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool is_json_line(std::string_view line) { return line.starts_with(R"({"time":")") && line.ends_with('}'); }

}  // namespace tutti::launch
