#include "tutti/base/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace tutti {
namespace detail {
std::uint32_t crc32c_with_tables(std::span<const std::byte> bytes);
std::uint32_t crc32c_with_instruction(std::span<const std::byte> bytes);
}  // namespace detail
namespace {

std::span<const std::byte> bytes(std::string_view text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, PublishedValues) {  // RFC 3720, appendix B.4
  EXPECT_EQ(crc32c(bytes("")), 0u);
  EXPECT_EQ(crc32c(bytes("123456789")), 0xE3069283u);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte(0))), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::vector<std::byte>(32, std::byte(0xff))), 0x62A8AB43u);
}

TEST(Crc32c, TablesAndInstructionAgreeAtEveryLength) {
  std::vector<std::byte> data;
  for (int i = 0; i < 1100; ++i) {  // from 512 bytes on they are folded
    EXPECT_EQ(detail::crc32c_with_tables(data), crc32c(data)) << i << " bytes";
    EXPECT_EQ(detail::crc32c_with_tables(data), detail::crc32c_with_instruction(data)) << i << " bytes";
    data.push_back(std::byte(i * 37 + 11));
  }
}

// Three streams of 4096 bytes run side by side.
TEST(Crc32c, TablesAndInstructionAgreeOnLongRunsAnywhere) {
  std::vector<std::byte> data(40000);
  std::uint32_t random = 1;
  for (auto& byte : data) byte = std::byte((random = random * 1664525 + 1013904223) >> 24);
  for (const std::size_t size : {12287u, 12288u, 12289u, 12295u, 24576u, 30001u, 36864u, 39990u})
    for (const std::size_t begin : {0u, 1u, 7u}) {
      const auto part = std::span(data).subspan(begin, size);
      EXPECT_EQ(detail::crc32c_with_tables(part), crc32c(part)) << size << " bytes from " << begin;
      EXPECT_EQ(detail::crc32c_with_instruction(part), crc32c(part)) << size << " bytes from " << begin;
      EXPECT_EQ(crc32c(part.subspan(5000), crc32c(part.first(5000))), crc32c(part));
    }
}

TEST(Crc32c, ContinuesFromAPrefix) { EXPECT_EQ(crc32c(bytes("6789"), crc32c(bytes("12345"))), 0xE3069283u); }

}  // namespace
}  // namespace tutti
