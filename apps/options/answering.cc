#include "apps/options/answering.h"

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "apps/options/command_line.h"

namespace tutti::cli {
namespace {

// A write that failed in the middle has left no reason, but the next one fails for the same.
Error unwritten_answer(int cause) {
  if (cause == 0) {
    std::clearerr(stdout);
    if (std::fputc('\n', stdout) == EOF || std::fflush(stdout) != 0) cause = errno;
  }
  constexpr const char* kWhat = "could not write all of the answer to standard output";
  return cause != 0 ? system_error(cause, kWhat) : Error{.code = Code::kSystem, .detail = kWhat};
}

}  // namespace

int answering(const std::string& command, const std::function<int()>& body) {
  int code = 1;
  try {
    code = body();
  } catch (const std::system_error&) {  // fmt::print() does not get rid of its text
    if (std::ferror(stdout) == 0) throw;
  }
  const int cause = std::fflush(stdout) == 0 ? 0 : errno;
  if (cause == 0 && std::ferror(stdout) == 0) return code;
  tell(command, unwritten_answer(cause));
  return code == 0 ? 1 : code;
}

}  // namespace tutti::cli
