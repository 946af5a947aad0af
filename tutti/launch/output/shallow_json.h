#pragma once
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace tutti {

// What others have written, as `Json` (nlohmann::json or ordered_json). None: it is no JSON, or nests deeper than 100,
// which dump(), whose recursion takes the stack, must not be given.
template <class Json>
std::optional<Json> parse_shallow(std::string_view text) {
  constexpr int kDeepest = 100;
  bool too_deep = false;
  const auto keep = [&](int depth, typename Json::parse_event_t, Json&) {
    too_deep |= depth > kDeepest;
    return depth <= kDeepest;
  };
  auto json = Json::parse(text, keep, false);
  if (json.is_discarded() || too_deep) return {};
  return json;
}

}  // namespace tutti
