#include "tutti/launch/membership/messages.h"

#include <gmock/gmock.h>

#include "tutti/launch/membership/round.h"

namespace tutti {
namespace {

const JoinRequest kComer{.id = "1f",
                         .visit = 3,
                         .wanted = 1,
                         .min = 2,
                         .max = 4,
                         .port = 29500,
                         .last_round = 7,
                         .note = {.ranks = 2, .listed = {2, 1}, .host = "b", .address = "10.0.0.2", .about = "x\ny"}};

TEST(RoundWords, AreReadAsTheyWereWritten) {
  EXPECT_EQ(parse_comer(encode(kComer)), kComer);
  const Participants roster{.round = 3, .nodes = {kComer, kComer}, .past = {Fault{.text = "crash", .code = 139}}};
  EXPECT_EQ(parse_roster(encode(roster)), roster);
  const CoordinatorAddress coordinator{.term = 2, .id = "1f", .host = "a", .address = "10.0.0.1:29501", .proof = "5e"};
  EXPECT_EQ(parse_coordinator(encode(coordinator)), coordinator);
  EXPECT_EQ(parse_seat(encode(Assignment{.round = 3, .node = 2}))->node, 2);
  const Error error{.code = Code::kTimeout, .detail = "nobody came", .hint = "wait", .waited = 3, .limit = 4};
  const auto refused = parse_seat(encode(Assignment{.refused = error}));
  EXPECT_EQ(to_string(*refused->refused), to_string(error));
}

TEST(RoundWords, NewsAreReadAsTheyWereWritten) {
  const RoundEnd fault{.kind = RoundEnd::Kind::kFault,
                       .again = true,
                       .fault = {.text = "crash", .code = 139, .rank = 2},
                       .verdict = {.restart = true, .pause = std::chrono::seconds(2), .reason = "restart 1 of 3"}};
  EXPECT_EQ(parse_news(encode(fault)), fault);
  for (const bool gentle : {false, true}) {
    const RoundEnd membership{
        .kind = RoundEnd::Kind::kMembership, .again = true, .text = "node 2 is lost", .gentle = gentle};
    EXPECT_EQ(parse_news(encode(membership)), membership);
  }
  EXPECT_EQ(parse_news(encode(RoundEnd())), RoundEnd());
  EXPECT_EQ(parse_news("what?").fault.text, "what?");
  EXPECT_FALSE(parse_news("what?").again);
}

TEST(RoundWords, NonsenseIsNothing) {
  for (const char* text : {"", "[]", "{}", "1", R"("nodes")", R"({"id": 3, "note": {}})",
                           R"({"round": 1, "nodes": [1]})", R"({"round": 1, "nodes": {}})",
                           R"({"round": 99999999999999999999, "node": 1})", R"({"term": -5, "id": "x"})"}) {
    EXPECT_FALSE(parse_comer(text)) << text;
    EXPECT_FALSE(parse_roster(text)) << text;
    EXPECT_FALSE(parse_seat(text)) << text;
    EXPECT_FALSE(parse_coordinator(text)) << text;
  }
}

TEST(RoundWords, AComerIsNamed) {
  EXPECT_EQ(words(kComer), "node 1 (b at 10.0.0.2)");
  JoinRequest any = kComer;
  any.wanted = -1;
  EXPECT_EQ(words(any), "b at 10.0.0.2");
  EXPECT_EQ(words(any, 5), "node 5 (b at 10.0.0.2)");
}

}  // namespace
}  // namespace tutti
