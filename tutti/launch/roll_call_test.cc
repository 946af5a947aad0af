#include "tutti/launch/roll_call.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using testing::HasSubstr;

std::string refusal(const std::vector<std::string>& texts) {
  const auto notes = read_roll(texts);
  return notes.ok() ? "" : to_string(notes.error());
}

TEST(RollCall, NodesTellTheirRanks) {
  const auto notes =
      read_roll({encode({.ranks = 2, .listed = {2, 1}, .host = "a"}), encode({.ranks = 1, .host = "b"})});
  ASSERT_TRUE(notes.ok());
  EXPECT_EQ((*notes)[0], (RollNote{.ranks = 2, .listed = {2, 1}, .host = "a"}));
  EXPECT_EQ((*notes)[1], (RollNote{.ranks = 1, .listed = {}, .host = "b"}));
}

TEST(RollCall, NodesThatContradictEachOtherAreNamed) {
  EXPECT_THAT(refusal({encode({.ranks = 2, .listed = {2, 1}}), encode({.ranks = 1, .listed = {2, 3}})}),
              HasSubstr("node 0 was given -n 2,1, but node 1 -n 2,3"));
  EXPECT_THAT(refusal({encode({.ranks = 2}), encode({.ranks = 1, .listed = {3, 1}})}),
              HasSubstr("node 1 was given -n 3,1, but node 0 runs 2 ranks"));
}

TEST(RollCall, AListThatIsTooShortForTheNodesIsRefused) {
  EXPECT_THAT(refusal({encode({.ranks = 2, .listed = {2}}), encode({.ranks = 1})}),
              HasSubstr("node 0 runs another version of tutti"));
}

TEST(RollCall, NumbersThatNoNodeHasAreRefused) {
  const std::string words = R"("host": "a", "address": "", "about": ""})";
  for (const std::string& text :
       {std::string(), std::string("[]"), R"({"ranks": 0, "listed": [], )" + words,
        R"({"ranks": 99999999999999999999, "listed": [], )" + words, R"({"ranks": 2, "listed": [1, "x"], )" + words,
        R"({"ranks": 2, )" + words, std::string(R"({"ranks": 2, "listed": []})")})
    EXPECT_THAT(refusal({text}), HasSubstr("node 0 runs another version of tutti")) << text;
}

TEST(RollCall, WhatEndedTheJobIsReadAsItWasWritten) {
  const Fault fault{.text = "rank 2 was\nkilled", .code = 137, .report = true, .rank = 2, .step = 1200};
  EXPECT_EQ(parse_end(encode_end(fault)), fault);
  EXPECT_EQ(parse_end(encode_end({})), std::nullopt);
  EXPECT_EQ(parse_end("what?"), (Fault{.text = "what?", .code = 1}));
  EXPECT_EQ(parse_end(R"({"text": "long", "code": 4294967296})")->code, 1) << "no process ends with that";
}

}  // namespace
}  // namespace tutti
