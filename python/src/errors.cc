#include "errors.h"

#include <c10/util/Exception.h>

#include <deque>

#include "tutti/base/mutex.h"

namespace tutti::python {
namespace {

constexpr std::size_t kKept = 64;

struct Raised {
  std::string text;
  Error error;
};
// Never destroyed: a thread may raise while the process exits.
Mutex& raised_mutex = *new Mutex;
std::deque<Raised>& raised TUTTI_GUARDED_BY(raised_mutex) = *new std::deque<Raised>;  // the newest first

}  // namespace

// PyTorch's tests look for the words "Timed out" between spaces, and programs do too.
void raise(const Error& error) {
  std::string text = to_string(error);
  text = error.code == Code::kTimeout ? "tutti: Timed out (" + text + ")" : "tutti: " + text;
  {
    const MutexLock lock(raised_mutex);
    std::erase_if(raised, [&](const Raised& one) { return one.text == text; });
    raised.push_front({text, error});
    if (raised.size() > kKept) raised.pop_back();
  }
  C10_THROW_ERROR(DistBackendError, text);
}

std::optional<Error> raised_error_in(const std::string& text) {
  const MutexLock lock(raised_mutex);
  const Raised* longest = nullptr;  // one text may be the beginning of another
  for (const Raised& one : raised)
    if (text.find(one.text) != text.npos && (!longest || one.text.size() > longest->text.size())) longest = &one;
  return longest ? std::optional(longest->error) : std::nullopt;
}

}  // namespace tutti::python
