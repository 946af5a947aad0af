#pragma once
// What PyTorch says: a Python program that prints one line of JSON.
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace tutti::test {

inline constexpr char kNoPythonWithTorch[] =
    "no python3 can import torch.distributed with gloo (apt install python3-torch python3-numpy, or set TUTTI_PYTHON "
    "to a Python that has it)";

// A Python that has torch with gloo: TUTTI_PYTHON, else the first python3 that can import it; empty if there is none.
inline std::string python_with_torch() {
  const char* chosen = std::getenv("TUTTI_PYTHON");
  for (const std::string& python :
       chosen ? std::vector<std::string>{chosen} : std::vector<std::string>{"python3", "/usr/bin/python3"}) {
    const std::string command =
        python + " -c 'import torch.distributed as d, sys; sys.exit(not d.is_gloo_available())' >/dev/null 2>&1";
    if (std::system(command.c_str()) == 0) return python;
  }
  return "";
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
