// A job of one node, and one that waits for another in vain. Jobs of several are in
// tests/conformance/rendezvous_conformance.cc.
#include "tutti/launch/membership/rendezvous.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "tutti/launch/membership/options.h"
#include "tutti/launch/membership/protocol.h"
#include "tutti/store/tcp_store.h"

namespace tutti::launch {
namespace {

NodesOptions one_node() {
  NodesOptions options{.store = {.host = "127.0.0.1"}};
  options.counts.here = 3;
  options.credentials = {.secret = transport::Secret::from_text("open sesame"), .job = "job"};
  options.host = "here";
  options.master_address = "127.0.0.1";
  options.master_port = 29500;
  options.say = [](const std::string&) {};
  return options;
}

TEST(SingleNode, JoinsAtOnceAndServesTheStoreOfItsRanks) {
  const NodesOptions options = one_node();
  const auto node = open_rendezvous(options).or_throw();
  const Round round = node->join().or_throw();
  EXPECT_EQ(round.number, 0);
  EXPECT_EQ(round.layout.counts, std::vector<int>{3});
  EXPECT_EQ(round.nodes.size(), 1u);
  EXPECT_EQ(round.master_port, 29500);
  EXPECT_TRUE(node->one_node());
  EXPECT_FALSE(node->dispensable());
  const auto store = TcpStore::connect(transport::parse_address(round.store).or_throw(), options.credentials, 0,
                                       Deadline::after(std::chrono::seconds(60)))
                         .or_throw();
  node->report(Fault{.text = "crash"});
  EXPECT_EQ(store->get(membership::keys::fault(0), Deadline::after(std::chrono::seconds(60))).or_throw(), "crash");
}

TEST(SingleNode, ARestartIsTheNextRound) {
  NodesOptions options = one_node();
  options.judge = [](const std::vector<Fault>& past, const Fault&) { return Verdict{.restart = past.empty()}; };
  const auto node = open_rendezvous(options).or_throw();
  EXPECT_EQ(node->join().or_throw().restarts_used, 0);
  EXPECT_TRUE(node->report(Fault{.text = "crash"}).again);
  EXPECT_EQ(node->report(Fault{.text = "another"}).fault.text, "crash") << "the first one wins";
  const Round second = node->join().or_throw();
  EXPECT_EQ(second.number, 1);
  EXPECT_EQ(second.restarts_used, 1);
  EXPECT_FALSE(node->round_end().has_value());
  EXPECT_FALSE(node->report(Fault{.text = "crash"}).again);
}

TEST(SingleNode, TheRoundEndsWithItsRanks) {
  const auto node = open_rendezvous(one_node()).or_throw();
  node->join().or_throw();
  EXPECT_FALSE(node->next_event().has_value());
  node->finished();
  ASSERT_TRUE(node->next_event().has_value());
  EXPECT_EQ(node->round_end()->kind, RoundEnd::Kind::kEnded);
  node->leave({});
}

TEST(SingleNode, APortInUseIsAnError) {
  NodesOptions options = one_node();
  const auto first = open_rendezvous(options).or_throw();
  options.store = transport::parse_address(first->join().or_throw().store).or_throw();
  const auto second = open_rendezvous(options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kAddressInUse);
}

// The coordinator reads the store that its node serves: it ends first, or it would report a lost store.
TEST(Node, ThatWaitedInVainReportsNothingElse) {
  NodesOptions options = one_node();
  options.nodes = options.min_nodes = 2;
  options.timeout = std::chrono::milliseconds(20);
  std::mutex mutex;
  std::string said;
  options.say = [&](const std::string& line) {
    const std::scoped_lock lock(mutex);
    said += line + "\n";
  };
  for (int i = 0; i < 5; ++i) {
    const auto joined = open_rendezvous(options).or_throw()->join();
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.error().code, Code::kTimeout);
  }
  EXPECT_THAT(said, testing::Not(testing::HasSubstr("lost the store")));
}

}  // namespace
}  // namespace tutti::launch
