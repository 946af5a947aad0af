#pragma once
// Environment variables, read with care: an empty value counts as unset, a value that does not parse is an error
// that names the variable.
#include <cstdint>
#include <optional>
#include <string>

#include "tutti/base/error.h"

namespace tutti {

std::optional<std::string> env(const std::string& name);
// The number in the variable; none if unset.
Result<std::optional<std::int64_t>> env_int(const std::string& name);
// A duration such as "30s" or "5min", in seconds.
Result<std::optional<double>> env_seconds(const std::string& name);
// "1", "true", "yes", "on" / "0", "false", "no", "off"; `otherwise` if unset.
Result<bool> env_flag(const std::string& name, bool otherwise);

}  // namespace tutti
