#include "apps/options/report.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

#include "tutti/base/env.h"
#include "tutti/launch/output/error_files.h"
#include "tutti/rendezvous/identity.h"

namespace tutti::cli {
namespace {

// A write that failed earlier has left no errno, but the next write fails for the same reason.
Error unwritten_answer(int cause) {
  if (cause == 0) {
    std::clearerr(stdout);
    if (std::fputc('\n', stdout) == EOF || std::fflush(stdout) != 0) cause = errno;
  }
  constexpr const char* kWhat = "could not write all of the answer to standard output";
  return cause != 0 ? system_error(cause, kWhat) : Error{.code = Code::kSystem, .detail = kWhat};
}

}  // namespace

void report(const std::string& command, const Error& error) {
  Error without_hint = error;
  without_hint.hint.clear();
  std::string text = to_string(without_hint);
  if (error.code == Code::kUsage || error.code == Code::kInvalidArgument) text.erase(0, text.find(": ") + 2);
  std::fprintf(stderr, "%s: %s\n", command.c_str(), text.c_str());
  if (!error.hint.empty()) std::fprintf(stderr, "hint: %s\n", error.hint.c_str());
}

void report_once(const std::string& command, const Error& error) {
  const auto who = rendezvous::identify({}, current_environment());
  const bool written = launch::write_error_file(to_string(error));
  if (!who.ok() || who->rank == 0) return report(command, error);
  if (written) return;
  fmt::print(stderr,
             "{}: rank {} exits before the ranks connect: its options cannot be right (rank 0, if it was given the "
             "same, says why)\n",
             command, who->rank);
}

int with_checked_output(const std::string& command, const std::function<int()>& body) {
  int code = 1;
  try {
    code = body();
  } catch (const std::system_error&) {  // fmt::print() could not write its text
    if (std::ferror(stdout) == 0) throw;
  }
  const int cause = std::fflush(stdout) == 0 ? 0 : errno;
  if (cause == 0 && std::ferror(stdout) == 0) return code;
  report(command, unwritten_answer(cause));
  return code == 0 ? 1 : code;
}

}  // namespace tutti::cli
