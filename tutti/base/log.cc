// spdlog writes the lines. Only this file includes it, because its headers take two seconds to parse.
#include "tutti/base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>

#include "tutti/base/env.h"

namespace tutti::log {
namespace {

spdlog::level::level_enum to_spdlog(Level level) {
  switch (level) {
    case Level::kDebug:
      return spdlog::level::debug;
    case Level::kInfo:
      return spdlog::level::info;
    case Level::kWarn:
      return spdlog::level::warn;
    case Level::kError:
      return spdlog::level::err;
  }
  return spdlog::level::info;
}

// Empty for an unknown level. (spdlog's own from_str() maps an unknown word to "off".)
std::optional<spdlog::level::level_enum> level_of(std::string_view word) {
  if (word == "debug") return spdlog::level::debug;
  if (word == "info") return spdlog::level::info;
  if (word == "warn") return spdlog::level::warn;
  if (word == "error") return spdlog::level::err;
  if (word == "off") return spdlog::level::off;
  return std::nullopt;
}

struct Wishes {
  spdlog::level::level_enum level = spdlog::level::info;
  std::set<std::string, std::less<>> topics;
  std::string unknown;  // the first unknown word
};

const Wishes& wishes() {
  static const Wishes instance = [] {
    Wishes made;
    std::istringstream words(env("TUTTI_LOG").value_or("info"));
    for (std::string word; std::getline(words, word, ',');) {
      if (const auto level = level_of(word))
        made.level = *level;
      else if (std::ranges::find(kTopics, word) != std::end(kTopics))
        made.topics.insert(word);
      else if (made.unknown.empty())
        made.unknown = word;
    }
    return made;
  }();
  return instance;
}

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("tutti", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("[tutti] %v");
    made->flush_on(spdlog::level::trace);
    made->set_level(wishes().level);
    if (const Status setting = check_setting(); !setting.ok())
      made->warn(setting.error().detail + ": this word is ignored");
    return made;
  }();
  return *instance;
}

}  // namespace

Status check_setting() {
  if (wishes().unknown.empty()) return {};
  return Error{.code = Code::kUsage,
               .detail = "TUTTI_LOG says \"" + wishes().unknown +
                         "\", expected debug, info, warn, error or off, or the topic select"};
}

void tell_of_setting() { (void)logger(); }

bool wants(std::string_view topic) { return wishes().topics.contains(topic); }

void set_rank(int rank) {
  logger().set_pattern(rank < 0 ? "[tutti] %v" : "[tutti rank " + std::to_string(rank) + "] %v");
}

void write(Level level, std::string_view text) {
  logger().log(to_spdlog(level), spdlog::string_view_t(text.data(), text.size()));
}

void FewWarnings::warn(std::string_view text, Clock::time_point time) {
  constexpr std::size_t kShown = 5;
  if (time - since_ > std::chrono::seconds(10)) {
    if (count_ > kShown) log::warn("there were " + std::to_string(count_ - kShown) + " more " + kind_);
    since_ = time;
    count_ = 0;
  }
  if (++count_ <= kShown) log::warn(text);
}

}  // namespace tutti::log
