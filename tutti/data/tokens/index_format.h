#pragma once
// The header of Megatron-LM's .idx, little-endian:
//
//   bytes  what
//   0-8    "MMIDIDX\0\0"
//   9-16   u64 version, 1
//   17     u8 code of the token type
//   18-25  u64 sequences S
//   26-33  u64 entries of the document index, D + 1
//   34-    i32 length of each sequence; i64 offset of each in the .bin, in bytes; i64 first sequence of each document,
//          and S; sometimes an i8 for each sequence besides (modes), which is left alone
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tutti::token_index {

inline constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
inline constexpr std::uint64_t kVersion = 1;
inline constexpr std::size_t kVersionAt = 9, kTypeAt = 17, kSequencesAt = 18, kDocumentsAt = 26, kHeaderBytes = 34;

}  // namespace tutti::token_index
