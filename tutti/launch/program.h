#pragma once
// From the name that a user typed to a file that execve() will take, or a sentence that says why not.
#include <string>

#include "tutti/base/error.h"

namespace tutti {

// A name with a slash is a path, any other is looked for in `search_path` (the value of PATH). Checks that the file
// exists, is no folder, may be executed, and that a script's interpreter does and may as well. Errors are kUsage.
Result<std::string> find_program(const std::string& name, const std::string& search_path);

}  // namespace tutti
