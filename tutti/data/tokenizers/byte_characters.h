#pragma once
// GPT-2's files write every byte as a printable character: itself where it is printable in Latin-1, else one from
// U+0100 on, in the order of the bytes ("\u0120" is a blank). Also the order in which the 256 bytes are numbered.
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti {

// The bytes in the order of their characters: token t of a fresh vocabulary is byte byte_order()[t].
const std::array<std::uint8_t, 256>& byte_order();
std::string to_byte_characters(std::string_view bytes);                        // UTF-8
std::optional<std::string> from_byte_characters(std::string_view characters);  // none where one stands for no byte

}  // namespace tutti
