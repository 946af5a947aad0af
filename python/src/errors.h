#pragma once
// Errors of the core as exceptions of torch.distributed. Such an exception has nothing but a text, and gets into others
// on its way to Python. So this keeps the errors that were raised last, for tutti.error_of(). Threads: any.
#include <optional>
#include <string>

#include "tutti/base/error.h"

namespace tutti::python {

[[noreturn]] void raise(const Error& error);  // as torch.distributed.DistBackendError
template <class Value>
Value or_raise(Result<Value> result) {
  if (!result.ok()) raise(result.error());
  return *std::move(result);
}
inline void or_raise(const Status& status) {
  if (!status.ok()) raise(status.error());
}

// The error whose text is in `text`.
std::optional<Error> raised_error_in(const std::string& text);

}  // namespace tutti::python
