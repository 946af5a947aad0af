#pragma once
// What a program reports: mistakes on standard error, and answers on standard output, which may be a full disk.
#include <functional>
#include <string>

#include "tutti/base/error.h"

namespace tutti::cli {

using Reporter = std::function<void(const std::string& command, const Error& error)>;

// Prints "command: error" to standard error, and the hint on a line of its own.
void report(const std::string& command, const Error& error);

// For a mistake that all ranks of a job make alike, before they have connected: rank 0, as the environment numbers it,
// reports the error; a process without a number counts as rank 0. Every rank writes the error into the file of
// TORCHELASTIC_ERROR_FILE, for its launcher's report. Where no launcher reads such a file, the other ranks print one
// line that they exit.
void report_once(const std::string& command, const Error& error);

// Every main() runs its `body` by this, and returns what it returns: the exit code of `body`. If standard output did
// not take all that `body` wrote there, this is reported as an error of `command`, and 0 becomes 1.
int with_checked_output(const std::string& command, const std::function<int()>& body);

}  // namespace tutti::cli
