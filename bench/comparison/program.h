#pragma once
// Other programs that a comparison runs, and what they said.
#include <string>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/base/env.h"

namespace tutti::bench {

struct Program {
  std::string path;                    // for execve()
  std::vector<std::string> arguments;  // without argv[0]
  Environment environment;
  std::string input;       // written to its standard input, which then ends
  bool is_server = false;  // is ended when all others have ended, and not earlier
};

// This process's environment without what a launcher left there.
Environment clean_environment();

// Path of a program that is looked for in PATH (and in the folders of the administrator); none if it is not there.
std::optional<std::string> find_in_path(const std::string& name);

// Starts them, waits until all (but servers) have ended, and returns what the first wrote to its standard output. A
// program that cannot be started, ends badly or not in time is an error with its last words; none is left behind.
// Blocks. Main thread only.
Result<std::string> run_together(const std::vector<Program>& programs, Deadline deadline);
inline Result<std::string> run_program(const Program& program, Deadline deadline) {
  return run_together({program}, deadline);
}

}  // namespace tutti::bench
