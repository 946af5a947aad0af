#pragma once
// What PyTorch says: a Python program that prints one line of JSON.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/harness/python.h"

namespace tutti::test {

// Empty if there is none.
inline std::string python_with_torch() {
  return python_that_runs("import torch.distributed as d, sys; sys.exit(not d.is_gloo_available())");
}

// Throws with the command, if that fails; what it says on standard error goes to ours.
inline nlohmann::json answer_of(const std::string& command) {
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (!pipe) throw std::runtime_error("cannot start " + command);
  std::string text(1 << 20, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), pipe));
  if (const int status = ::pclose(pipe); status != 0)
    throw std::runtime_error(command + " ended with status " + std::to_string(status));
  return nlohmann::json::parse(text);
}

}  // namespace tutti::test
