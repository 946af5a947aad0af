#pragma once
// Environment variables. An empty value counts as unset. A value that does not parse is an error that names the
// variable.
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

std::optional<std::string> env(const std::string& name);
// A duration such as "30s" or "5min", in seconds.
Result<std::optional<double>> env_seconds(const std::string& name);
// "1", "true", "yes", "on" / "0", "false", "no", "off"; `otherwise` if unset.
Result<bool> env_flag(const std::string& name, bool otherwise);

// An environment as a value: for functions of it, and for programs that are started.
using Environment = std::map<std::string, std::string>;
Environment current_environment();  // of this process

// All variables that Tutti reads, without "TUTTI_". The test layers.variables compares this list with the sources.
std::span<const std::string> known_variables();

// A message for each variable of `environment` that starts with TUTTI_, is not known, and resembles a known one.
std::vector<std::string> misspelt_variables(const Environment& environment);

}  // namespace tutti
