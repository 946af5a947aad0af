#pragma once
// How wide a token is in a .bin file: the codes of Megatron-LM's .idx format
// (megatron/core/datasets/indexed_dataset.py).
#include <cstddef>
#include <cstdint>
#include <optional>

namespace tutti {

enum class TokenType : std::uint8_t { kU8 = 1, kI8 = 2, kI16 = 3, kI32 = 4, kI64 = 5, kU16 = 8 };

// The type of a code that stands in a file; none for an unknown one, and for those of real numbers (6 and 7).
std::optional<TokenType> token_type(std::uint8_t code);
const char* name(TokenType type);  // "u16"
std::size_t size_of(TokenType type);
// What holds the ids below `vocabulary`: Megatron-LM takes u16 below 65500, else i32.
TokenType type_for_vocabulary(std::int64_t vocabulary);
// The largest id that a type holds.
std::int64_t most_of(TokenType type);

}  // namespace tutti
