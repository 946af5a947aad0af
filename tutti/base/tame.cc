// A terminal that takes bytes for Latin-1 obeys a lone 0x9b as it does ESC [, so what is not UTF-8 does not pass; nor
// does the same character in an overlong form, which some decoders accept.
#include "tutti/base/tame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace tutti {
namespace {

struct Character {
  std::uint32_t code = 0;
  std::size_t bytes = 1;
  bool valid = false;
};

Character first_of(std::string_view text) {
  const auto byte = [&](std::size_t i) { return std::uint32_t(static_cast<unsigned char>(text[i])); };
  if (byte(0) < 0x80) return {byte(0), 1, true};
  const std::size_t bytes = byte(0) >= 0xf8 ? 0 : byte(0) >= 0xf0 ? 4 : byte(0) >= 0xe0 ? 3 : byte(0) >= 0xc0 ? 2 : 0;
  if (bytes == 0 || bytes > text.size()) return {};
  std::uint32_t code = byte(0) & (0x7fu >> bytes);
  for (std::size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3f);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = code >= 0xd800 && code < 0xe000;
  if (code < kLeast[bytes] || code > 0x10ffff || surrogate) return {};
  return {code, bytes, true};
}

bool is_obeyed(std::uint32_t code) {
  const bool control = code < 0x20 || (code >= 0x7f && code < 0xa0);
  const bool reorders = code == 0x61c || code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                        (code >= 0x2066 && code <= 0x2069);
  const bool breaks_lines = code == 0x2028 || code == 0x2029;
  return control || reorders || breaks_lines;
}

}  // namespace

std::string tame(std::string_view text) {
  std::string tamed;
  tamed.reserve(text.size());
  while (!text.empty()) {
    const Character next = first_of(text);
    const bool passes = next.valid && (!is_obeyed(next.code) || next.code == '\n' || next.code == '\t');
    tamed += passes ? text.substr(0, next.bytes) : "?";
    text.remove_prefix(next.bytes);
  }
  return tamed;
}

std::string tame_line(std::string_view text) {
  std::string tamed = tame(text);
  std::replace_if(
      tamed.begin(), tamed.end(), [](char c) { return c == '\n' || c == '\t'; }, '?');
  return tamed;
}

std::string quoted_name(std::string_view name) {
  std::string out = "\"";
  for (const unsigned char c : name.substr(0, 80))
    out += c < 0x20 || c == 0x7f ? fmt::format("\\x{:02x}", c) : std::string(1, char(c));
  return out + (name.size() > 80 ? "...\"" : "\"");
}

}  // namespace tutti
