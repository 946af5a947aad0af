#include "tutti/checkpoint/format/digests.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tutti/base/crc32c.h"

namespace tutti {
namespace {

TEST(ChangedByte, IsFoundWhereverItIs) {
  std::mt19937 random(1);
  std::vector<std::uint8_t> bytes(100'000);
  for (auto& byte : bytes) byte = std::uint8_t(random());
  const auto digest = [&] { return crc32c(std::as_bytes(std::span(bytes))); };
  const std::uint32_t expected = digest();
  for (const std::size_t place : {std::size_t(0), std::size_t(1), std::size_t(54'321), bytes.size() - 1}) {
    for (unsigned change = 1; change < 256; change += 17) {
      bytes[place] ^= std::uint8_t(change);
      const auto found = one_changed_byte(digest(), expected, bytes.size());
      ASSERT_TRUE(found.has_value()) << place;
      EXPECT_EQ(found->place, place);
      EXPECT_EQ(found->change, change);
      bytes[place] ^= std::uint8_t(change);
    }
  }
}

TEST(ChangedByte, IsNotThereWhereNoneOrSeveralChanged) {
  std::vector<std::uint8_t> bytes(1000, 7);
  const std::uint32_t expected = crc32c(std::as_bytes(std::span(bytes)));
  EXPECT_FALSE(one_changed_byte(expected, expected, bytes.size()));
  bytes[3] = bytes[500] = 8;
  EXPECT_FALSE(one_changed_byte(crc32c(std::as_bytes(std::span(bytes))), expected, bytes.size()));
}

}  // namespace
}  // namespace tutti
