// The shortest program, `int main() { auto world = tutti::init(); ... }`, has no try. Its user who forgot a variable
// should read what is missing, and the launcher should see a plain exit code and not a crash of this rank.
#include "tutti/runtime/uncaught.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <mutex>

#include "tutti/base/error.h"
#include "tutti/base/log.h"
#include "tutti/launch/exit_codes.h"
#include "tutti/runtime/last_stack.h"

namespace tutti {
namespace {

std::terminate_handler handler_before = nullptr;

int code_of(const Error& error) {
  const int code = exit_code_of(error.code);
  const bool usage = error.code == Code::kUsage || error.code == Code::kInvalidArgument;
  return usage || error.operation == "join" ? code : 1;
}

[[noreturn]] void on_terminate() {
  try {
    if (const auto uncaught = std::current_exception()) std::rethrow_exception(uncaught);
  } catch (const Exception& failure) {
    leave_last_words(failure.what());
    log::error(failure.what());
    std::fflush(nullptr);
    ::_exit(code_of(failure.error()));
  } catch (const std::exception& failure) {  // of others: handled as if we were not here
    leave_last_words(failure.what());
  } catch (...) {
  }
  if (handler_before) handler_before();
  std::abort();
}

}  // namespace

void end_uncaught_exceptions_with_a_sentence() {
  static std::once_flag once;
  std::call_once(once, [] { handler_before = std::set_terminate(on_terminate); });
}

}  // namespace tutti
