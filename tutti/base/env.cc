#include "tutti/base/env.h"

#include <unistd.h>

#include <algorithm>
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

// Unknown TUTTI_ variables that resemble no known one are ignored: environment modules of a site set TUTTI_ROOT and the
// like, and programs may have their own variables.

namespace {

constexpr std::string_view kPrefix = "TUTTI_";

}  // namespace

std::span<const std::string> known_variables() {
  static const std::string kNames[] = {"ALGORITHM",
                                       "BENCH_CONGESTION",
                                       "CUDA_PATH",
                                       "DEVICE",
                                       "ENGINE",
                                       "ENGINE_PATH",
                                       "ETCD_PASSWORD",
                                       "FLIGHT_DIR",
                                       "FLIGHT_SIZE",
                                       "GENERATION",
                                       "HANG_WARNING",
                                       "HEAP_LIMIT",
                                       "HOST_ID",
                                       "IFACE",
                                       "INIT",
                                       "INSECURE",
                                       "JOB",
                                       "JOIN_TIMEOUT",
                                       "KEPT_MEMORY_FD",
                                       "LEAVE_TIMEOUT",
                                       "LOG",
                                       "MIXED_BUILDS",
                                       "NETWORK",
                                       "NODE_MET_FD",
                                       "PEER_TIMEOUT",
                                       "PROGRESS_FD",
                                       "REPLACE_GLOO",
                                       "SECRET",
                                       "SECRET_FD",
                                       "SECRET_FILE",
                                       "STORE",
                                       "STREAMS",
                                       "TIMEOUT",
                                       "TRANSPORT"};
  return kNames;
}

std::vector<std::string> misspelt_variables(const Environment& environment) {
  const auto known = known_variables();
  std::vector<std::string> sentences;
  for (const auto& [name, value] : environment) {
    if (!name.starts_with(kPrefix)) continue;
    const std::string own = name.substr(kPrefix.size());
    if (std::find(known.begin(), known.end(), own) != known.end()) continue;
    if (const auto near = nearest(own, known))
      sentences.push_back(name + " is no variable of tutti and means nothing (did you mean " + std::string(kPrefix) +
                          *near + "?)");
  }
  return sentences;
}

}  // namespace tutti
