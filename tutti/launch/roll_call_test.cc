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
  EXPECT_THAT(refusal({"2\n2,1\na", "1\n2,3\nb"}), HasSubstr("node 0 was given -n 2,1, but node 1 -n 2,3"));
  EXPECT_THAT(refusal({"2\n\na", "1\n3,1\nb"}), HasSubstr("node 1 was given -n 3,1, but node 0 runs 2 ranks"));
}

TEST(RollCall, AListThatIsTooShortForTheNodesIsRefused) {
  EXPECT_THAT(refusal({"2\n2\na", "1\n\nb"}), HasSubstr("node 0 runs another version of tutti"));
}

TEST(RollCall, NumbersThatNoNodeHasAreRefused) {
  for (const char* text : {"", "0\n\na", "99999999999\n\na", "2\n1,x\na", "2\n\na\nb", "2\na"})
    EXPECT_THAT(refusal({text}), HasSubstr("node 0 runs another version of tutti")) << text;
}

TEST(RollCall, WhatEndedTheJobIsReadAsItWasWritten) {
  const Fault fault{.text = "rank 2 was\nkilled", .code = 137, .report = true};
  EXPECT_EQ(parse_end(encode_end(fault)), fault);
  EXPECT_EQ(parse_end(encode_end({})), std::nullopt);
  EXPECT_EQ(parse_end("what?"), (Fault{.text = "what?", .code = 1}));
  EXPECT_EQ(parse_end("4294967296\nlong")->code, 1) << "no process ends with that";
}

}  // namespace
}  // namespace tutti
