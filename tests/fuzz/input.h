#pragma once
// What the targets share: bytes to be taken one after another, a promise, and a file of given bytes.
#include <cstdint>
#include <span>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti::fuzz {

using Input = std::span<const std::uint8_t>;

// Throws a std::logic_error with the promise that was broken, which ends a libFuzzer program.
void promise(bool kept, const char* what);
// A refusal says what is wrong.
void promise_sentence(const Error& error);

// Takes the first of what is left; 0 and nothing where nothing is.
std::uint8_t take(Input& input);
Input take(Input& input, std::size_t bytes);
std::string text_of(Input input);

// A file without a name that holds these bytes, as long as the object lives.
class BytesFile {
 public:
  explicit BytesFile(Input bytes);
  std::string path() const;

 private:
  Fd fd_;
};

}  // namespace tutti::fuzz
