#pragma once
// The values that a checkpoint says beside its tensors, by name and kind.
#include <optional>
#include <string>

#include "tutti/checkpoint/manifest.h"

namespace tutti {

// None: it is not there, or no whole number.
inline std::optional<std::int64_t> whole_number(const CheckpointValues& values, const std::string& name) {
  const auto found = values.find(name);
  const auto* value = found == values.end() ? nullptr : std::get_if<std::int64_t>(&found->second);
  return value ? std::optional(*value) : std::nullopt;
}
// A whole number counts as well: that is how 2.0 may come back.
inline std::optional<double> real_number(const CheckpointValues& values, const std::string& name) {
  const auto found = values.find(name);
  if (found == values.end()) return {};
  if (const auto* value = std::get_if<double>(&found->second)) return *value;
  if (const auto* value = std::get_if<std::int64_t>(&found->second)) return double(*value);
  return {};
}

}  // namespace tutti
