#pragma once
// The Python that tests compare with: TUTTI_PYTHON, which ./run-tests sets, else a python3 of this machine.
#include <cstdlib>
#include <string>
#include <vector>

namespace tutti::test {

// A Python that runs this statement, such as "import numpy, safetensors"; empty if there is none.
inline std::string python_that_runs(const std::string& statement) {
  const char* chosen = std::getenv("TUTTI_PYTHON");
  for (const std::string& python :
       chosen ? std::vector<std::string>{chosen} : std::vector<std::string>{"python3", "/usr/bin/python3"})
    if (std::system((python + " -c '" + statement + "' >/dev/null 2>&1").c_str()) == 0) return python;
  return "";
}

inline std::string no_python_with(const std::string& modules) {
  return "no python3 can import " + modules + " (./run-tests installs what it needs; else set TUTTI_PYTHON)";
}

}  // namespace tutti::test
