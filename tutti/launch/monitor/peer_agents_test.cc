#include "tutti/launch/monitor/peer_agents.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/eventually.h"
#include "tutti/launch/membership/protocol.h"
#include "tutti/store/server/server.h"
#include "tutti/transport/socket.h"

namespace tutti::launch {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class PeerAgents : public ::testing::Test {
 protected:
  const transport::Credentials credentials_{.secret = transport::Secret::random(), .job = "j"};
  const std::unique_ptr<StoreServer> server_ =
      *StoreServer::start(transport::Address{.host = "127.0.0.1"}, credentials_);
  const std::string store_ = to_string(server_->address());

  // Until the node's status is in the store.
  void await_status(int round, int node) {
    const auto key = membership::keys::status(round, node);
    EXPECT_TRUE(server_->local()->get(key, Deadline::after_seconds(60)).ok()) << key;
  }
  std::unique_ptr<PeerStatus> status(int round, int node, int nodes) {
    return PeerStatus::start(store_, credentials_, round, node, nodes).or_throw();
  }
  static void read(PeerStatus& node) {
    const auto asked = now();
    node.request();
    EXPECT_TRUE(test::eventually([&] { return node.read_since(asked); }));
  }
};

TEST_F(PeerAgents, AReportReachesTheOtherNodesOfItsRound) {
  EXPECT_EQ(read_report(store_, credentials_, 2, std::chrono::milliseconds(50)).error().code, Code::kTimeout);
  ASSERT_TRUE(share_report(store_, credentials_, 2, {.text = "rank 1 was\nkilled", .json = "{}"}).ok());
  const auto heard = read_report(store_, credentials_, 2, std::chrono::seconds(30));
  ASSERT_TRUE(heard.ok()) << to_string(heard.error());
  EXPECT_EQ(heard->text, "rank 1 was\nkilled");
  EXPECT_EQ(heard->json, "{}");
  EXPECT_EQ(read_report(store_, credentials_, 3, std::chrono::milliseconds(50)).error().code, Code::kTimeout);
}

TEST_F(PeerAgents, AnEndlessReportIsCut) {
  ASSERT_TRUE(
      share_report(store_, credentials_, 0, {.text = std::string(3 << 20, 'x'), .json = std::string(3 << 20, '[')})
          .ok());
  const auto heard = read_report(store_, credentials_, 0, std::chrono::seconds(30));
  ASSERT_TRUE(heard.ok()) << to_string(heard.error());
  EXPECT_EQ(heard->text.size(), std::size_t(1 << 20));
  EXPECT_EQ(heard->json, "") << "half of it would be none";
}

TEST_F(PeerAgents, AMissingStoreIsReportedInTime) {
  const std::string gone = to_string(listen(transport::Address{.host = "127.0.0.1"})->address);
  const auto began = now();
  EXPECT_FALSE(share_report(gone, credentials_, 0, {.text = "x", .json = "{}"}).ok());
  EXPECT_FALSE(read_report("no address", credentials_, 0, std::chrono::seconds(1)).ok());
  EXPECT_LT(now() - began, std::chrono::seconds(30));
}

TEST_F(PeerAgents, StatusesOfTheOtherNodesAreReadWhileSomebodyAsks) {
  const auto first = status(0, 0, 3), second = status(0, 1, 3);
  EXPECT_THAT(first->peers().at(1).status, IsEmpty());
  EXPECT_EQ(first->peers().count(0), 0u) << "itself";
  second->publish("of the second");
  await_status(0, 1);
  read(*first);
  EXPECT_EQ(first->peers().at(1).status, "of the second");
  EXPECT_THAT(first->peers().at(2).status, IsEmpty()) << "it has told nothing yet";
  EXPECT_EQ(first->trouble(), "");
}

TEST_F(PeerAgents, AnotherRoundIsIgnored) {
  const auto before = status(0, 1, 2), now_first = status(1, 0, 2);
  before->publish("of an earlier round");
  await_status(0, 1);
  read(*now_first);
  EXPECT_THAT(now_first->peers().at(1).status, IsEmpty());
}

TEST_F(PeerAgents, TheReasonWhyNothingCanBeReadIsReported) {
  const std::string gone = to_string(listen(transport::Address{.host = "127.0.0.1"})->address);
  const auto alone = PeerStatus::start(gone, credentials_, 0, 0, 2).or_throw();
  EXPECT_TRUE(test::eventually([&] { return !alone->trouble().empty(); }));
  EXPECT_THAT(alone->trouble(), HasSubstr(gone));
}

}  // namespace
}  // namespace tutti::launch
