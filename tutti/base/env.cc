#include "tutti/base/env.h"

#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "tutti/base/text.h"

namespace tutti {
namespace {

Error bad_value(const std::string& name, const std::string& value, const char* expected) {
  return Error{.code = Code::kUsage,
               .detail = "the environment variable " + name + " is \"" + value + "\", expected " + expected};
}

}  // namespace

std::optional<std::string> env(const std::string& name) {
  const char* const value = std::getenv(name.c_str());
  if (!value || !*value) return std::nullopt;
  return std::string(value);
}

Result<std::optional<double>> env_seconds(const std::string& name) {
  const auto text = env(name);
  if (!text) return std::optional<double>();
  const auto value = parse_seconds(*text);
  if (!value) return bad_value(name, *text, "a duration such as 30s, 250ms or 5min");
  return value;
}

Result<bool> env_flag(const std::string& name, bool otherwise) {
  const auto text = env(name);
  if (!text) return otherwise;
  for (const char* yes : {"1", "true", "yes", "on"})
    if (*text == yes) return true;
  for (const char* no : {"0", "false", "no", "off"})
    if (*text == no) return false;
  return bad_value(name, *text, "1 or 0");
}

Environment current_environment() {
  Environment environment;
  for (char** at = environ; at && *at; ++at) {
    const std::string_view entry = *at;
    const auto equals = entry.find('=');
    if (equals == std::string_view::npos || equals == 0) continue;
    environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

}  // namespace tutti
