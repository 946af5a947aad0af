#pragma once
// What a program has to say goes to standard output, which may be a full disk. Every main() goes through here.
#include <functional>
#include <string>

namespace tutti::cli {

// The exit code of `body`. Where standard output did not take all that it wrote there, this is told as an error of
// `command`, and 0 becomes 1.
int answering(const std::string& command, const std::function<int()>& body);

}  // namespace tutti::cli
