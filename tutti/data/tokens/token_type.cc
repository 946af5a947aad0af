#include "tutti/data/tokens/token_type.h"

#include <limits>

namespace tutti {

std::optional<TokenType> token_type(std::uint8_t code) {
  for (const TokenType type :
       {TokenType::kU8, TokenType::kI8, TokenType::kI16, TokenType::kI32, TokenType::kI64, TokenType::kU16})
    if (std::uint8_t(type) == code) return type;
  return {};
}

const char* name(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return "u8";
    case TokenType::kI8:
      return "i8";
    case TokenType::kI16:
      return "i16";
    case TokenType::kI32:
      return "i32";
    case TokenType::kI64:
      return "i64";
    case TokenType::kU16:
      return "u16";
  }
  return "?";
}

std::size_t size_of(TokenType type) {
  switch (type) {
    case TokenType::kU8:
    case TokenType::kI8:
      return 1;
    case TokenType::kI16:
    case TokenType::kU16:
      return 2;
    case TokenType::kI32:
      return 4;
    case TokenType::kI64:
      return 8;
  }
  return 0;
}

TokenType type_for_vocabulary(std::int64_t vocabulary) {
  return vocabulary < 65500 ? TokenType::kU16 : TokenType::kI32;
}

std::int64_t most_of(TokenType type) {
  switch (type) {
    case TokenType::kU8:
      return std::numeric_limits<std::uint8_t>::max();
    case TokenType::kI8:
      return std::numeric_limits<std::int8_t>::max();
    case TokenType::kI16:
      return std::numeric_limits<std::int16_t>::max();
    case TokenType::kI32:
      return std::numeric_limits<std::int32_t>::max();
    case TokenType::kI64:
      return std::numeric_limits<std::int64_t>::max();
    case TokenType::kU16:
      return std::numeric_limits<std::uint16_t>::max();
  }
  return 0;
}

}  // namespace tutti
