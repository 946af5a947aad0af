#include "tutti/data/tokenizers/byte_characters.h"

#include <gtest/gtest.h>

#include <set>

namespace tutti {
namespace {

TEST(ByteCharacters, AreGpt2s) {
  EXPECT_EQ(to_byte_characters(" a\n"), "\u0120a\u010a");
  EXPECT_EQ(to_byte_characters("\xc3\xa9"), "\u00c3\u00a9");
  EXPECT_EQ(to_byte_characters(std::string_view("\0\x7f\xad\xff", 4)), "\u0100\u0121\u0143\u00ff");
  EXPECT_EQ(byte_order()[0], '!');
  EXPECT_EQ(byte_order()[83], 't');
  EXPECT_EQ(byte_order()[188], 0);  // the first that is not printable
  EXPECT_EQ(byte_order()[220], ' ');
}

TEST(ByteCharacters, GoBothWays) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += char(byte);
  EXPECT_EQ(from_byte_characters(to_byte_characters(all)), all);
  EXPECT_EQ(std::set<std::uint8_t>(byte_order().begin(), byte_order().end()).size(), 256u);
  for (const char* wrong : {" ", "\n", "\u0144", "\u3042", "\xc3", "\xff", "\xc3z"})
    EXPECT_FALSE(from_byte_characters(wrong)) << wrong;
}

}  // namespace
}  // namespace tutti
