#include "tutti/launch/roll_call.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using testing::HasSubstr;

std::string refusal(const std::vector<RollNote>& notes) {
  const Status status = check_roll(notes);
  return status.ok() ? "" : to_string(status.error());
}

TEST(RollCall, NodesTellTheirRanks) {
  const RollNote first{.ranks = 2, .listed = {2, 1}, .host = "a", .address = "10.0.0.1", .about = "x", .pid = 71};
  EXPECT_EQ(parse_roll_note(encode(first)), first);
  EXPECT_EQ(first.release, TUTTI_VERSION);
  EXPECT_EQ(parse_roll_note(R"({"ranks": 1, "listed": [], "host": "", "address": "", "about": ""})")->release, "")
      << "of one that is too old to tell";
  EXPECT_EQ(refusal({first, {.ranks = 1, .host = "b"}}), "");
}

TEST(RollCall, NodesThatContradictEachOtherAreNamed) {
  EXPECT_THAT(refusal({{.ranks = 2, .listed = {2, 1}}, {.ranks = 1, .listed = {2, 3}}}),
              HasSubstr("node 0 was given -n 2,1, but node 1 -n 2,3"));
  EXPECT_THAT(refusal({{.ranks = 2}, {.ranks = 1, .listed = {3, 1}}}),
              HasSubstr("node 1 was given -n 3,1, but node 0 runs 2 ranks"));
  EXPECT_THAT(refusal({{.ranks = 2, .listed = {2}}, {.ranks = 1}}),
              HasSubstr("node 0 was given -n 2, but 2 nodes take part"));
}

TEST(RollCall, WhatIsNoNoteIsNone) {
  const std::string words = R"("host": "a", "address": "", "about": ""})";
  for (const std::string& text :
       {std::string(), std::string("[]"), R"({"ranks": 0, "listed": [], )" + words,
        R"({"ranks": 99999999999999999999, "listed": [], )" + words, R"({"ranks": 2, "listed": [1, "x"], )" + words,
        R"({"ranks": 2, )" + words, std::string(R"({"ranks": 2, "listed": []})")})
    EXPECT_EQ(parse_roll_note(text), std::nullopt) << text;
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
