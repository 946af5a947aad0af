#include "tutti/launch/membership/protocol.h"

#include <gmock/gmock.h>

namespace tutti::launch::membership {
namespace {

using testing::HasSubstr;

const JoinRequest kRequest{.id = "1f",
                           .visit = 3,
                           .wanted = 1,
                           .min = 2,
                           .max = 4,
                           .port = 29500,
                           .last_round = 7,
                           .note = {.ranks = 2, .listed = {2, 1}, .host = "b", .address = "10.0.0.2", .about = "x\ny"}};

TEST(ProtocolValues, AreReadAsTheyWereWritten) {
  EXPECT_EQ(parse_join_request(encode(kRequest)), kRequest);
  const Participants participants{
      .round = 3, .nodes = {kRequest, kRequest}, .past = {Fault{.text = "crash", .code = 139}}};
  EXPECT_EQ(parse_participants(encode(participants)), participants);
  const CoordinatorAddress coordinator{.term = 2, .id = "1f", .host = "a", .address = "10.0.0.1:29501", .proof = "5e"};
  EXPECT_EQ(parse_coordinator(encode(coordinator)), coordinator);
  const StorePair pair{.round = 2, .servers = "10.0.0.1:1,10.0.0.2:1", .standby = "1f", .votes = "10.0.0.2:1"};
  EXPECT_EQ(parse_store_pair(encode(pair)), pair);
  EXPECT_EQ(parse_assignment(encode(Assignment{.round = 3, .node = 2}))->node, 2);
  const Error error{.code = Code::kTimeout, .detail = "nobody came", .hint = "wait", .waited = 3, .limit = 4};
  const auto refused = parse_assignment(encode(Assignment{.refused = error}));
  EXPECT_EQ(to_string(*refused->refused), to_string(error));
}

TEST(ProtocolValues, RoundEndsAreReadAsTheyWereWritten) {
  const RoundEnd fault{.kind = RoundEnd::Kind::kFault,
                       .again = true,
                       .fault = {.text = "crash", .code = 139, .rank = 2},
                       .verdict = {.restart = true, .pause = std::chrono::seconds(2), .reason = "restart 1 of 3"}};
  EXPECT_EQ(parse_round_end(encode(fault)), fault);
  for (const bool gentle : {false, true}) {
    const RoundEnd membership{
        .kind = RoundEnd::Kind::kMembership, .again = true, .text = "node 2 is lost", .gentle = gentle};
    EXPECT_EQ(parse_round_end(encode(membership)), membership);
  }
  EXPECT_EQ(parse_round_end(encode(RoundEnd())), RoundEnd());
  EXPECT_EQ(parse_round_end("what?").fault.text, "what?");
  EXPECT_FALSE(parse_round_end("what?").again);
}

TEST(ProtocolValues, NonsenseIsNone) {
  for (const char* text : {"", "[]", "{}", "1", R"("nodes")", R"({"id": 3, "note": {}})",
                           R"({"round": 1, "nodes": [1]})", R"({"round": 1, "nodes": {}})",
                           R"({"round": 99999999999999999999, "node": 1})", R"({"term": -5, "id": "x"})"}) {
    EXPECT_FALSE(parse_join_request(text)) << text;
    EXPECT_FALSE(parse_participants(text)) << text;
    EXPECT_FALSE(parse_assignment(text)) << text;
    EXPECT_FALSE(parse_coordinator(text)) << text;
  }
}

TEST(ProtocolValues, AJoinRequestIsDescribed) {
  EXPECT_EQ(describe(kRequest), "node 1 (b at 10.0.0.2)");
  JoinRequest any = kRequest;
  any.wanted = -1;
  EXPECT_EQ(describe(any), "b at 10.0.0.2");
  EXPECT_EQ(describe(any, 5), "node 5 (b at 10.0.0.2)");
}

std::string refusal(const std::vector<NodeNote>& notes) {
  const Status status = check_rank_counts(notes);
  return status.ok() ? "" : to_string(status.error());
}

TEST(NodeNote, IsReadAsItWasWritten) {
  const NodeNote first{.ranks = 2, .listed = {2, 1}, .host = "a", .address = "10.0.0.1", .about = "x", .pid = 71};
  EXPECT_EQ(parse_node_note(encode(first)), first);
  EXPECT_EQ(first.release, TUTTI_VERSION);
  EXPECT_EQ(parse_node_note(R"({"ranks": 1, "listed": [], "host": "", "address": "", "about": ""})")->release, "")
      << "an older release does not say it";
  EXPECT_EQ(refusal({first, {.ranks = 1, .host = "b"}}), "");
}

TEST(NodeNote, ContradictoryRankCountsNameBothNodes) {
  EXPECT_THAT(refusal({{.ranks = 2, .listed = {2, 1}}, {.ranks = 1, .listed = {2, 3}}}),
              HasSubstr("node 0 was given -n 2,1, but node 1 -n 2,3"));
  EXPECT_THAT(refusal({{.ranks = 2}, {.ranks = 1, .listed = {3, 1}}}),
              HasSubstr("node 1 was given -n 3,1, but node 0 runs 2 ranks"));
  EXPECT_THAT(refusal({{.ranks = 2, .listed = {2}}, {.ranks = 1}}),
              HasSubstr("node 0 was given -n 2, but 2 nodes take part"));
}

TEST(NodeNote, OtherTextIsNone) {
  const std::string words = R"("host": "a", "address": "", "about": ""})";
  for (const std::string& text :
       {std::string(), std::string("[]"), R"({"ranks": 0, "listed": [], )" + words,
        R"({"ranks": 99999999999999999999, "listed": [], )" + words, R"({"ranks": 2, "listed": [1, "x"], )" + words,
        R"({"ranks": 2, )" + words, std::string(R"({"ranks": 2, "listed": []})")})
    EXPECT_EQ(parse_node_note(text), std::nullopt) << text;
}

TEST(FaultValue, IsReadAsItWasWritten) {
  const Fault fault{.text = "rank 2 was\nkilled", .code = 137, .report = true, .rank = 2, .step = 1200};
  EXPECT_EQ(parse_fault(encode_fault(fault)), fault);
  EXPECT_EQ(parse_fault(encode_fault({})), std::nullopt);
  EXPECT_EQ(parse_fault("what?"), (Fault{.text = "what?", .code = 1}));
  EXPECT_EQ(parse_fault(R"({"text": "long", "code": 4294967296})")->code, 1) << "no process ends with that";
}

TEST(InboxNote, JoinsOrLeaves) {
  EXPECT_EQ(parse_note(join_note(kRequest))->join, kRequest);
  EXPECT_EQ(parse_note(leave_note("1f"))->leave, "1f");
  EXPECT_FALSE(parse_note(leave_note("1f"))->join.has_value());
  for (const char* text : {"", "join", "join {}", "go 1f"}) EXPECT_FALSE(parse_note(text).has_value()) << text;
}

// The wire format of agents of one release: an agent of an older build may run beside a newer one.
TEST(ProtocolValues, KeepTheirNames) {
  const NodeNote note{.ranks = 2, .host = "a", .release = "1"};
  EXPECT_EQ(encode(note), R"({"about":"","address":"","host":"a","listed":[],"pid":0,"ranks":2,"release":"1"})");
  EXPECT_EQ(encode(StorePair{.round = 1, .servers = "s", .standby = "b", .votes = "v"}),
            R"({"box":"v","round":1,"servers":"s","successor":"b"})");
  EXPECT_EQ(encode(Participants{.round = 1, .nodes = {}, .past = {}, .standby = "b"}),
            R"({"nodes":[],"past":[],"round":1,"successor":"b"})");
  EXPECT_EQ(keys::assignment("1f", 2), "agents/assignment/1f/2");
  EXPECT_EQ(keys::participants(3), "agents/participants/3");
  EXPECT_EQ(keys::status(3, 1), "agents/status/3/1");
  EXPECT_TRUE(join_note(kRequest).starts_with("join {"));
}

TEST(HeartbeatDatagram, IsReadOnlyWithTheJobsKey) {
  const transport::Credentials job{.secret = transport::Secret::from_text("sesame"), .job = "job"};
  const auto key = heartbeat_key(job);
  const Datagram datagram{.kind = Datagram::Kind::kEcho, .out = true, .round = 7, .id = 5, .own = 8, .other = 9};
  const auto bytes = encode(datagram, key);
  EXPECT_EQ(parse_datagram(bytes, key), datagram);
  EXPECT_FALSE(
      parse_datagram(bytes, heartbeat_key({.secret = transport::Secret::from_text("sesame"), .job = "other"})));
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    auto wrong = bytes;
    wrong[i] ^= std::byte(1);
    EXPECT_FALSE(parse_datagram(wrong, key)) << i;
  }
  EXPECT_FALSE(parse_datagram(std::span(bytes).first(40), key));
}

}  // namespace
}  // namespace tutti::launch::membership
