// The CRC is linear: the two digests differ by what the changed bits alone would give, started from zero. Those are one
// byte e and then zeros; the byte leaves table[e], and each zero takes state s to table[s & 255] ^ (s >> 8). Walked
// backwards, from the end of the run, a state that is some table[e] is the changed byte. The walk is unique: the upper
// bytes of the 256 entries of the table are all different.
#include "tutti/checkpoint/changed_byte.h"

#include <array>

namespace tutti {
namespace {

struct Tables {
  std::array<std::uint32_t, 256> entry{};
  std::array<std::uint8_t, 256> by_upper_byte{};
};

constexpr Tables make_tables() {
  Tables tables;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = (remainder >> 1) ^ ((remainder & 1) ? 0x82F63B78u : 0);
    tables.entry[byte] = remainder;
    tables.by_upper_byte[remainder >> 24] = std::uint8_t(byte);
  }
  return tables;
}
constexpr Tables kTables = make_tables();

}  // namespace

std::optional<ChangedByte> one_changed_byte(std::uint32_t found, std::uint32_t expected, std::uint64_t size) {
  std::uint32_t state = found ^ expected;
  if (state == 0) return {};
  for (std::uint64_t left = size; left > 0; --left) {
    const std::uint8_t byte = kTables.by_upper_byte[state >> 24];
    const std::uint32_t before = state ^ kTables.entry[byte];
    if (before == 0) return ChangedByte{left - 1, byte};
    state = before << 8 | byte;
  }
  return {};
}

}  // namespace tutti
