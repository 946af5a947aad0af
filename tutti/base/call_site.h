#pragma once
// The position of a call in the program's source. As a default argument it costs two registers:
//   void verb(int x, CallSite at = CallSite::here());
#include <cstdint>

namespace tutti {

class CallSite {
 public:
  CallSite() = default;  // unknown
  // file: a literal at an address below 2^48, as in user space; line: up to 65535.
  CallSite(const char* file, std::uint32_t line)
      : bits_(std::uint64_t(line < 65535 ? line : 65535) << 48 | reinterpret_cast<std::uintptr_t>(file)) {}
  // The position of the call to the function (or aggregate) that has this as a default argument. (clang 14 lacks
  // std::source_location.)
  static CallSite here(const char* file = __builtin_FILE(), std::uint32_t line = __builtin_LINE()) {
    return {file, line};
  }
  static CallSite from_bits(std::uint64_t bits) {
    CallSite site;
    site.bits_ = bits;
    return site;
  }

  const char* file() const { return reinterpret_cast<const char*>(std::uintptr_t(bits_ << 16 >> 16)); }
  std::uint32_t line() const { return std::uint32_t(bits_ >> 48); }
  std::uint64_t bits() const { return bits_; }

 private:
  std::uint64_t bits_ = 0;
};

}  // namespace tutti
