#pragma once
#include <CLI/CLI.hpp>
#include <string>

namespace tutti::cli {

// --job-id "$NAME", and NAME is not set: that is no wish for the default.
inline const CLI::Validator kNotEmpty(
    [](const std::string& value) {
      return value.empty() ? std::string("an empty value (is a variable that it comes from not set?)") : std::string();
    },
    "");

}  // namespace tutti::cli
