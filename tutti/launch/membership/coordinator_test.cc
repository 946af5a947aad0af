// A coordinator at work on a store of this process; the agents are notes in its inbox.
#include "tutti/launch/membership/coordinator.h"

#include <gmock/gmock.h>

#include "tutti/store/memory_store.h"

namespace tutti::launch::membership {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::HasSubstr;

Deadline soon() { return Deadline::after(seconds(60)); }

class Coordinating : public testing::Test {
 protected:
  CoordinatorOptions options(const std::string& id, Limits limits) {
    return {.limits = limits,
            .id = id,
            .host = "host-" + id,
            .address = "127.0.0.1",
            .credentials = {.secret = transport::Secret::from_text("open sesame"), .job = "job"},
            .vote = {},
            .predecessor = {},
            .say = [](const std::string&) {}};
  }
  std::unique_ptr<Coordinator> claim(const std::string& id, Limits limits,
                                     const std::optional<std::string>& before = {}) {
    return Coordinator::claim(store_->clone(soon()).or_throw(), options(id, limits), before).or_throw();
  }
  void request(const std::string& id, int visit, Limits limits, int term = 0) {
    const JoinRequest request{
        .id = id, .visit = visit, .min = limits.min, .max = limits.max, .note = {.host = "host-" + id}};
    store_->push(keys::inbox(term), join_note(request)).or_throw();
  }
  Assignment assignment(const std::string& id, int visit) {
    return parse_assignment(store_->get(keys::assignment(id, visit), soon()).or_throw()).value();
  }
  RoundEnd end_of(int round) { return parse_round_end(store_->get(keys::end(round), soon()).or_throw()); }
  std::string coordinator() { return store_->get(keys::kCoordinator, soon()).or_throw(); }

  const std::unique_ptr<Store> store_ = std::make_unique<MemoryStore>();
  static constexpr Limits kTwo{.min = 2, .max = 2, .last_call = milliseconds(50), .lost_after = seconds(60)};
  static constexpr Limits kSome{.min = 1, .max = 3, .last_call = milliseconds(50), .lost_after = seconds(60)};
};

TEST_F(Coordinating, EveryNodeGetsItsAssignment) {
  const auto first = claim("1", kTwo);
  request("1", 1, kTwo);
  request("2", 1, kTwo);
  EXPECT_EQ(assignment("1", 1).node, 0);
  EXPECT_EQ(assignment("2", 1).node, 1);
  const auto participants = parse_participants(store_->get(keys::kParticipants, soon()).or_throw()).value();
  EXPECT_EQ(participants.nodes.size(), 2U);
  EXPECT_EQ(participants.standby, "") << "the store of this job has none";
}

TEST_F(Coordinating, ARepeatedRequestCountsOnce) {
  const auto first = claim("1", kTwo);
  request("1", 1, kTwo);
  request("1", 1, kTwo);
  request("2", 1, kTwo);
  request("2", 1, kTwo);
  EXPECT_EQ(assignment("2", 1).node, 1);
  EXPECT_FALSE(store_->check({keys::end(0)}).or_throw());
}

TEST_F(Coordinating, OnlyOneAgentClaims) {
  const auto first = claim("1", kTwo);
  EXPECT_EQ(claim("2", kTwo), nullptr) << "it has not seen the first";
  const auto second = claim("2", kTwo, coordinator());
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(second->who().term, 1);
  while (!first->is_over()) std::this_thread::yield();
}

TEST_F(Coordinating, ANodeThatLeavesEndsTheRoundForTheRest) {
  const auto first = claim("1", kSome);
  for (const char* id : {"1", "2", "3"}) request(id, 1, kSome);
  EXPECT_EQ(assignment("3", 1).round, 0);
  store_->push(keys::inbox(0), leave_note("3")).or_throw();
  const RoundEnd news = end_of(0);
  EXPECT_EQ(news.kind, RoundEnd::Kind::kMembership);
  EXPECT_TRUE(news.again);
  EXPECT_THAT(news.text, HasSubstr("(host-3) has left"));
  request("1", 2, kSome);
  request("2", 2, kSome);
  EXPECT_EQ(assignment("2", 2).round, 1);
}

TEST_F(Coordinating, ASuccessorContinuesAfterTheLastRound) {
  auto first = claim("1", kSome);
  for (const char* id : {"1", "2", "3"}) request(id, 1, kSome);
  EXPECT_EQ(assignment("2", 1).round, 0);
  first.reset();
  CoordinatorOptions next = options("2", kSome);
  next.predecessor = "1";
  const auto second = Coordinator::claim(store_->clone(soon()).or_throw(), next, coordinator()).or_throw();
  EXPECT_THAT(end_of(0).text, HasSubstr("(host-1) is lost: it served the store, which another node serves now"));
  request("2", 2, kSome, 1);
  request("3", 2, kSome, 1);
  EXPECT_EQ(assignment("2", 2).round, 1) << "and it does not wait for the one that it took over from";
  EXPECT_EQ(assignment("3", 2).node, 1);
}

TEST_F(Coordinating, WaitsForTheOthersAtTheEnd) {
  const auto first = claim("1", kTwo);
  request("1", 1, kTwo);
  request("2", 1, kTwo);
  EXPECT_EQ(assignment("2", 1).node, 1);
  EXPECT_FALSE(first->wait_for_others(Deadline::after(milliseconds(300))));
  store_->compare_set(keys::end(0), std::nullopt, encode(RoundEnd())).or_throw();
  store_->push(keys::inbox(0), leave_note("2")).or_throw();
  EXPECT_TRUE(first->wait_for_others(soon()));
}

TEST_F(Coordinating, NodesThatWaitCanReadWhy) {
  const auto first = claim("1", kTwo);
  request("1", 1, kTwo);
  EXPECT_THAT(store_->get(keys::kWaiting, soon()).or_throw(), HasSubstr("of 2 nodes joined after "));
}

}  // namespace
}  // namespace tutti::launch::membership
