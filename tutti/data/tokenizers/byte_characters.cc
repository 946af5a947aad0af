#include "tutti/data/tokenizers/byte_characters.h"

namespace tutti {
namespace {

constexpr bool is_printable(int byte) {
  return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

// The character of each byte, all below U+0144.
constexpr std::array<std::uint16_t, 256> kCharacters = [] {
  std::array<std::uint16_t, 256> characters{};
  std::uint16_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte)
    characters[std::size_t(byte)] = is_printable(byte) ? std::uint16_t(byte) : next++;
  return characters;
}();
constexpr std::size_t kMost = 0x100 + 68;

constexpr std::array<std::int16_t, kMost> kBytes = [] {
  std::array<std::int16_t, kMost> bytes{};
  bytes.fill(-1);
  for (int byte = 0; byte < 256; ++byte) bytes[kCharacters[std::size_t(byte)]] = std::int16_t(byte);
  return bytes;
}();

}  // namespace

const std::array<std::uint8_t, 256>& byte_order() {
  static constexpr std::array<std::uint8_t, 256> kOrder = [] {
    std::array<std::uint8_t, 256> order{};
    std::size_t at = 0;
    for (const std::int16_t byte : kBytes)
      if (byte >= 0) order[at++] = std::uint8_t(byte);
    return order;
  }();
  return kOrder;
}

std::string to_byte_characters(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    const std::uint16_t character = kCharacters[std::uint8_t(byte)];
    if (character < 0x80) {
      text += char(character);
    } else {
      text += char(0xc0 | character >> 6);
      text += char(0x80 | (character & 0x3f));
    }
  }
  return text;
}

std::optional<std::string> from_byte_characters(std::string_view characters) {
  std::string bytes;
  for (std::size_t i = 0; i < characters.size(); ++i) {
    unsigned character = std::uint8_t(characters[i]);
    if (character >= 0x80) {
      if ((character & 0xe0) != 0xc0 || i + 1 == characters.size()) return {};
      const unsigned low = std::uint8_t(characters[++i]);
      if ((low & 0xc0) != 0x80) return {};
      character = (character & 0x1f) << 6 | (low & 0x3f);
    }
    if (character >= kMost || kBytes[character] < 0) return {};
    bytes += char(kBytes[character]);
  }
  return bytes;
}

}  // namespace tutti
