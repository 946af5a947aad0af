#include "tutti/base/crc32c.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

namespace tutti {
namespace detail {
std::uint32_t crc32c_with_tables(std::span<const std::byte> bytes);
}
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
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(detail::crc32c_with_tables(data), crc32c(data)) << i << " bytes";
    data.push_back(std::byte(i * 37 + 11));
  }
}

TEST(Crc32c, GoesOnFromAPrefix) { EXPECT_EQ(crc32c(bytes("6789"), crc32c(bytes("12345"))), 0xE3069283u); }

}  // namespace
}  // namespace tutti
