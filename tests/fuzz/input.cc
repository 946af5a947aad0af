#include "tests/fuzz/input.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>

namespace tutti::fuzz {

void promise(bool kept, const char* what) {
  if (!kept) throw std::logic_error(std::string("broken promise: ") + what);
}

void promise_sentence(const Error& error) { promise(!error.detail.empty(), "a refusal says what is wrong"); }

std::uint8_t take(Input& input) {
  if (input.empty()) return 0;
  const std::uint8_t first = input.front();
  input = input.subspan(1);
  return first;
}

Input take(Input& input, std::size_t bytes) {
  const Input first = input.first(std::min(bytes, input.size()));
  input = input.subspan(first.size());
  return first;
}

std::string text_of(Input input) { return {reinterpret_cast<const char*>(input.data()), input.size()}; }

BytesFile::BytesFile(Input bytes) : fd_(::memfd_create("fuzz", MFD_CLOEXEC)) {
  promise(fd_ && ::write(fd_.get(), bytes.data(), bytes.size()) == ssize_t(bytes.size()), "a file can be made");
}

std::string BytesFile::path() const { return "/proc/self/fd/" + std::to_string(fd_.get()); }

}  // namespace tutti::fuzz
