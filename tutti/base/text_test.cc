#include "tutti/base/text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/text.h"

namespace tutti {

namespace {

using testing::ElementsAre;

TEST(Text, Seconds) {
  EXPECT_EQ(seconds_text(0), "0 s");
  EXPECT_EQ(seconds_text(0.17e-6), "0.17 us");
  EXPECT_EQ(seconds_text(52e-3), "52 ms");
  EXPECT_EQ(seconds_text(1), "1 s");
  EXPECT_EQ(seconds_text(12.4), "12.4 s");
  EXPECT_EQ(seconds_text(1e11), "27777777 h 46 min");
  EXPECT_EQ(seconds_text(2.5e304), "2.5e+304 s");
  EXPECT_EQ(seconds_text(90), "90 s");
  EXPECT_EQ(seconds_text(190), "3 min 10 s");
  EXPECT_EQ(seconds_text(300), "5 min");
  EXPECT_EQ(seconds_text(3 * 3600 + 5 * 60), "3 h 5 min");
  EXPECT_EQ(seconds_text(-2), "-2 s");
  // Never 1000 of a unit.
  EXPECT_EQ(seconds_text(0.9994), "999 ms");
  EXPECT_EQ(seconds_text(0.9996), "1 s");
  EXPECT_EQ(seconds_text(0.9996e-3), "1 ms");
  EXPECT_EQ(seconds_text(119.7), "2 min");
}

TEST(Text, Bytes) {
  EXPECT_EQ(bytes_text(0), "0 B");
  EXPECT_EQ(bytes_text(512), "512 B");
  EXPECT_EQ(bytes_text(64 << 10), "64 KiB");
  EXPECT_EQ(bytes_text(3 << 19), "1.5 MiB");
  EXPECT_EQ(bytes_text(std::uint64_t(1) << 30), "1 GiB");
  EXPECT_EQ(bytes_text(~std::uint64_t(0)), "16384 PiB");
}

TEST(Text, RanksFoldRunsOfThree) {
  const auto text = [](std::vector<int> ranks) { return ranks_text(ranks); };
  EXPECT_EQ(text({}), "");
  EXPECT_EQ(text({3}), "3");
  EXPECT_EQ(text({0, 1}), "0, 1");
  EXPECT_EQ(text({0, 1, 5, 6, 7, 8, 9}), "0, 1, 5-9");
  EXPECT_EQ(text({1, 2, 3}), "1-3");
  EXPECT_EQ(text({1, 3, 5}), "1, 3, 5");
  EXPECT_EQ(ranks_words(std::vector{3}), "rank 3");
  EXPECT_EQ(ranks_words(std::vector{1, 2, 3}), "ranks 1-3");
}

TEST(Text, JoinAndSplit) {
  EXPECT_EQ(join(std::vector<std::string>{}, ", "), "");
  EXPECT_EQ(join(std::vector<std::string>{"a", "b", "c"}, ", "), "a, b, c");
  EXPECT_THAT(split("a,,b", ','), ElementsAre("a", "", "b"));
  EXPECT_THAT(split("", ','), ElementsAre(""));
  EXPECT_THAT(split("a,", ','), ElementsAre("a", ""));
  EXPECT_EQ(trim(" \ta b\r\n"), "a b");
  EXPECT_EQ(trim(" \n"), "");
}

TEST(Text, ParsesWholeNumbersAndNothingElse) {
  EXPECT_EQ(parse_int("42"), 42);
  EXPECT_EQ(parse_int("-1"), -1);
  EXPECT_EQ(parse_int("9223372036854775807"), INT64_MAX);
  for (const char* text : {"", " 1", "1 ", "1.0", "0x10", "+1", "9223372036854775808", "four", "-"})
    EXPECT_EQ(parse_int(text), std::nullopt) << text;
}

TEST(Text, ParsesFiniteDoubles) {
  EXPECT_EQ(parse_double("0.5"), 0.5);
  EXPECT_EQ(parse_double("1e-3"), 1e-3);
  for (const char* text : {"", "nan", "inf", "1,5", "0.5x"}) EXPECT_EQ(parse_double(text), std::nullopt) << text;
}

TEST(Text, ParsesDurations) {
  EXPECT_EQ(parse_seconds("30"), 30);
  EXPECT_EQ(parse_seconds("30s"), 30);
  EXPECT_EQ(parse_seconds("5min"), 300);
  EXPECT_EQ(parse_seconds("5 m"), 300);
  EXPECT_EQ(parse_seconds("250ms"), 0.25);
  EXPECT_EQ(parse_seconds("1.5h"), 5400);
  for (const char* text : {"", "s", "-1s", "5 days", "1..5s"}) EXPECT_EQ(parse_seconds(text), std::nullopt) << text;
}

TEST(Text, ParsesByteCounts) {
  EXPECT_EQ(parse_bytes("4096"), 4096u);
  EXPECT_EQ(parse_bytes("64M"), 64u << 20);
  EXPECT_EQ(parse_bytes("64m"), 64u << 20);
  EXPECT_EQ(parse_bytes("1GiB"), 1u << 30);
  EXPECT_EQ(parse_bytes("1.5 KB"), 1536u);
  EXPECT_EQ(parse_bytes("7B"), 7u);
  for (const char* text : {"", "M", "-1", "1X", "1Mx", "99999999P"}) EXPECT_EQ(parse_bytes(text), std::nullopt) << text;
}

TEST(Text, FindsTheNearestKnownName) {
  const std::vector<std::string> known = {"--model", "--epochs", "--batch-size"};
  EXPECT_EQ(nearest("--modle", known), "--model");
  EXPECT_EQ(nearest("--batchsize", known), "--batch-size");
  EXPECT_EQ(nearest("--model", known), "--model");
  EXPECT_EQ(nearest("--quantize-everything", known), std::nullopt);
  EXPECT_EQ(nearest("rnu", std::vector<std::string>{"rn", "run"}), "rn");
  EXPECT_EQ(nearest("rnu", std::vector<std::string>{"un", "run"}), "run") << "neighbours swapped";
  EXPECT_EQ(nearest("app", std::vector<std::string>{"zip", "ls"}), std::nullopt) << "of three letters two agree";
  EXPECT_EQ(nearest("x", std::vector<std::string>{}), std::nullopt);
  EXPECT_EQ(nearest("x", std::vector<std::string>{"ip"}), std::nullopt);
  EXPECT_EQ(did_you_mean(nearest("--modle", known)), "did you mean --model?");
  EXPECT_EQ(did_you_mean(nearest("x", known), "see --help"), "see --help");
}

}  // namespace

namespace {

TEST(Sanitize, KeepsTextOfAnyLanguage) {
  for (const char* text : {"", "plain", "two\n\tlines", "Grüße, 你好, שלום 😀", "a\u00a0b"})
    EXPECT_EQ(sanitize(text), text);
}

TEST(Sanitize, ReplacesTerminalControls) {
  EXPECT_EQ(sanitize("red \033[31m, a bell \a,\r\x7f"), "red ?[31m, a bell ?,??");
  EXPECT_EQ(sanitize(std::string_view("a\0b", 3)), "a?b");
  EXPECT_EQ(sanitize("\u0080\u009b31m\u009f"), "??31m?");
  EXPECT_EQ(sanitize("\u202e evil \u2066\u2069\u200f"), "? evil ???");
  EXPECT_EQ(sanitize("one\u2028line"), "one?line");
}

TEST(Sanitize, ReplacesInvalidUtf8) {
  EXPECT_EQ(sanitize("\x9b"
                     "31m"),
            "?31m");
  EXPECT_EQ(sanitize("a\xff\xfe"), "a??");
  EXPECT_EQ(sanitize("\xc2"), "?") << "cut";
  EXPECT_EQ(sanitize("\xe2\x28\xa1"), "?(?");
  EXPECT_EQ(sanitize("\xc0\x9b"), "??") << "overlong";
  EXPECT_EQ(sanitize("\xe0\x82\x9b"), "???") << "overlong";
  EXPECT_EQ(sanitize("\xed\xa0\x80"), "???") << "half of a pair";
  EXPECT_EQ(sanitize("\xf4\x90\x80\x80"), "????") << "beyond Unicode";
}

TEST(Sanitize, OneLine) { EXPECT_EQ(sanitize_line("a\n\tb\033"), "a??b?"); }

}  // namespace

}  // namespace tutti
