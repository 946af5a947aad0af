#include "tutti/base/tame.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Tame, WordsOfAnyLanguageStay) {
  for (const char* text : {"", "plain", "two\n\tlines", "Grüße, 你好, שלום 😀", "a\u00a0b"}) EXPECT_EQ(tame(text), text);
}

TEST(Tame, WhatATerminalObeysDoesNot) {
  EXPECT_EQ(tame("red \033[31m, a bell \a,\r\x7f"), "red ?[31m, a bell ?,??");
  EXPECT_EQ(tame(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(tame("\u0080\u009b31m\u009f"), "??31m?");
  EXPECT_EQ(tame("\u202e evil \u2066\u2069\u200f"), "? evil ???");
  EXPECT_EQ(tame("one\u2028line"), "one?line");
}

TEST(Tame, WhatIsNotUtf8DoesNotPass) {
  EXPECT_EQ(tame("\x9b"
                 "31m"),
            "?31m");
  EXPECT_EQ(tame("a\xff\xfe"), "a??");
  EXPECT_EQ(tame("\xc2"), "?") << "cut";
  EXPECT_EQ(tame("\xe2\x28\xa1"), "?(?");
  EXPECT_EQ(tame("\xc0\x9b"), "??") << "overlong";
  EXPECT_EQ(tame("\xe0\x82\x9b"), "???") << "overlong";
  EXPECT_EQ(tame("\xed\xa0\x80"), "???") << "half of a pair";
  EXPECT_EQ(tame("\xf4\x90\x80\x80"), "????") << "beyond Unicode";
}

TEST(Tame, OneLine) { EXPECT_EQ(tame_line("a\n\tb\033"), "a??b?"); }

}  // namespace
}  // namespace tutti
