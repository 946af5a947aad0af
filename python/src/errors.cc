#include "errors.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <deque>

#include "tutti/base/mutex.h"

namespace tutti::python {
namespace {

constexpr std::size_t kKept = 64;

struct Raised {
  std::string text;
  Error error;
};
Mutex raised_mutex;
std::deque<Raised> raised TUTTI_GUARDED_BY(raised_mutex);  // the newest first

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
  const auto found =
      std::find_if(raised.begin(), raised.end(), [&](const Raised& one) { return text.find(one.text) != text.npos; });
  return found == raised.end() ? std::nullopt : std::optional(found->error);
}

}  // namespace tutti::python
