// Every promise of launch/membership/rendezvous.h, for every backend. The nodes of a job are objects of this process;
// each one is used by one thread at a time, as by an agent.
#include "tests/conformance/rendezvous_conformance.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <set>
#include <vector>

#include "tutti/base/deadline.h"
#include "tutti/base/fd.h"

namespace tutti {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::AllOf;
using testing::HasSubstr;

constexpr auto kLong = seconds(60);

launch::NodesOptions options_of(int node, int min, int max) {
  launch::NodesOptions options{.nodes = max, .min_nodes = min, .node = node};
  options.counts.here = node + 1;
  options.credentials = {.secret = transport::Secret::from_text("open sesame"), .job = "job"};
  options.host = "host" + std::to_string(node);
  options.about = "about " + std::to_string(node);
  options.timeout = kLong;
  options.last_call = kLong;
  options.say = [](const std::string&) {};
  return options;
}

launch::Verdict restart(const std::vector<launch::Fault>&, const launch::Fault&) {
  return {.restart = true, .reason = "once more"};
}

class Nodes {
 public:
  explicit Nodes(const RendezvousMaker& maker) : world_(maker.make()) {}
  ~Nodes() { leave(); }

  launch::Rendezvous& add(launch::NodesOptions options) { return *all_.emplace_back(world_->open(std::move(options))); }
  void add(int count, int min, int max, const launch::Judge& judge = {}) {
    for (int i = 0; i < count; ++i) {
      launch::NodesOptions options = options_of(int(all_.size()), min, max);
      options.judge = judge;
      add(std::move(options));
    }
  }
  launch::Rendezvous& operator[](int node) { return *all_[std::size_t(node)]; }
  int size() const { return int(all_.size()); }

  // The function for each node, at the same time.
  template <class Function>
  auto each(Function function) {
    std::vector<std::future<decltype(function((*this)[0]))>> calls;
    for (const auto& node : all_) calls.push_back(std::async(std::launch::async, [&] { return function(*node); }));
    std::vector<decltype(function((*this)[0]))> results;
    for (auto& call : calls) results.push_back(call.get());
    return results;
  }
  std::vector<launch::Round> join() {
    return each([](launch::Rendezvous& node) { return node.join().or_throw(); });
  }
  // Each as it leaves a job.
  void leave() {
    each([](launch::Rendezvous& node) { return node.leave(seconds(10)), true; });
    all_.clear();
  }
  void leave(int node) {
    all_[std::size_t(node)]->leave(seconds(10));
    all_.erase(all_.begin() + node);
  }

 private:
  const std::unique_ptr<RendezvousWorld> world_;
  std::vector<std::unique_ptr<launch::Rendezvous>> all_;
};

// Polls as an agent does, until the round has ended.
launch::RoundEnd await_end(launch::Rendezvous& node) {
  for (const Deadline patience = Deadline::after(kLong); !patience.expired();) {
    pollfd fd{node.fd(), POLLIN, 0};
    (void)::poll(&fd, 1, 1000);
    if (const auto& end = node.next_event()) return *end;
  }
  ADD_FAILURE() << "the round has not ended";
  return {};
}

TEST_P(RendezvousConformance, AllNodesLearnTheSameRound) {
  Nodes nodes(GetParam());
  nodes.add(3, 3, 3);
  const std::vector<launch::Round> rounds = nodes.join();
  std::set<int> numbers;
  for (const launch::Round& round : rounds) {
    numbers.insert(round.node);
    EXPECT_EQ(round.number, 0);
    EXPECT_EQ(round.restarts_used, 0);
    EXPECT_EQ(round.nodes, rounds[0].nodes);
    EXPECT_EQ(round.store, rounds[0].store);
    EXPECT_EQ(round.master_address, rounds[0].master_address);
    EXPECT_EQ(round.master_port, rounds[0].master_port);
    EXPECT_EQ(round.layout.counts, rounds[0].layout.counts);
    EXPECT_EQ(round.layout.node, round.node);
    EXPECT_EQ(round.layout.world_size(), 1 + 2 + 3);
  }
  EXPECT_EQ(numbers, (std::set<int>{0, 1, 2}));
  for (int i = 0; i < 3; ++i) {
    const launch::NodeFacts& facts = rounds[std::size_t(i)].nodes[std::size_t(rounds[std::size_t(i)].node)];
    EXPECT_EQ(facts.host, "host" + std::to_string(i));
    EXPECT_EQ(facts.about, "about " + std::to_string(i));
    EXPECT_EQ(facts.ranks, i + 1);
    EXPECT_FALSE(nodes[i].one_node());
    EXPECT_FALSE(nodes[i].next_event().has_value());
  }
}

TEST_P(RendezvousConformance, AFaultEndsTheRoundOnAllNodes) {
  Nodes nodes(GetParam());
  nodes.add(3, 3, 3);
  nodes.join();
  const launch::Fault fault{
      .text = "rank 2 was killed", .code = 137, .report = true, .rank = 2, .step = 7, .seconds = 1.5};
  const launch::RoundEnd mine = nodes[1].report(fault);
  EXPECT_TRUE(mine.mine);
  EXPECT_FALSE(mine.again) << "without a judge a fault ends the job";
  EXPECT_EQ(mine.fault, fault);
  for (const int other : {0, 2}) {
    const launch::RoundEnd heard = await_end(nodes[other]);
    EXPECT_EQ(heard.kind, launch::RoundEnd::Kind::kFault);
    EXPECT_FALSE(heard.mine);
    EXPECT_FALSE(heard.again);
    EXPECT_EQ(heard.fault, fault);
    EXPECT_EQ(nodes[other].report(launch::Fault{.text = "too late"}).fault, fault);
    EXPECT_EQ(nodes[other].round_end()->fault, fault);
  }
}

TEST_P(RendezvousConformance, OneOfSeveralFaultsWins) {
  Nodes nodes(GetParam());
  nodes.add(3, 3, 3);
  nodes.join();
  std::atomic<int> number = 0;
  const auto ends = nodes.each(
      [&](launch::Rendezvous& node) { return node.report(launch::Fault{.text = std::to_string(number++)}); });
  EXPECT_EQ(std::count_if(ends.begin(), ends.end(), [](const launch::RoundEnd& end) { return end.mine; }), 1);
  for (const launch::RoundEnd& end : ends) EXPECT_EQ(end.fault.text, ends[0].fault.text);
}

TEST_P(RendezvousConformance, ARestartIsTheNextRound) {
  Nodes nodes(GetParam());
  nodes.add(2, 2, 2, restart);
  const int first = nodes.join()[0].node;
  EXPECT_TRUE(nodes[0].report(launch::Fault{.text = "crash"}).again);
  const launch::RoundEnd heard = await_end(nodes[1]);
  EXPECT_TRUE(heard.again);
  EXPECT_TRUE(heard.verdict.restart);
  EXPECT_EQ(heard.verdict.reason, "once more");
  const auto rounds = nodes.join();
  for (const launch::Round& round : rounds) {
    EXPECT_EQ(round.number, 1);
    EXPECT_EQ(round.restarts_used, 1);
  }
  EXPECT_EQ(rounds[0].node, first) << "nodes keep their order";
  EXPECT_FALSE(nodes[0].round_end().has_value());
  EXPECT_FALSE(nodes[1].next_event().has_value());
}

TEST_P(RendezvousConformance, TheRoundEndsWellOnceAllHaveFinished) {
  Nodes nodes(GetParam());
  nodes.add(3, 3, 3, restart);
  nodes.join();
  nodes[0].finished();
  nodes[0].finished();  // counts once
  nodes[2].finished();
  for (const int node : {0, 2}) EXPECT_FALSE(nodes[node].next_event().has_value());
  nodes[1].finished();
  for (const int node : {0, 1, 2}) {
    const launch::RoundEnd end = await_end(nodes[node]);
    EXPECT_EQ(end.kind, launch::RoundEnd::Kind::kEnded);
    EXPECT_FALSE(end.again);
  }
}

TEST_P(RendezvousConformance, ANodeThatLeavesEndsTheRoundForTheOthers) {
  Nodes nodes(GetParam());
  nodes.add(3, 1, 3);
  nodes.join();
  EXPECT_TRUE(nodes[2].dispensable());
  EXPECT_FALSE(nodes[2].all_have_saved());
  for (const int other : {0, 1}) nodes[other].finished();
  EXPECT_TRUE(nodes[2].all_have_saved());
  nodes.leave(2);
  for (const int other : {0, 1}) {
    const launch::RoundEnd end = await_end(nodes[other]);
    EXPECT_EQ(end.kind, launch::RoundEnd::Kind::kMembership);
    EXPECT_TRUE(end.again);
    EXPECT_THAT(end.text, AllOf(HasSubstr("node 2 (host2)"), HasSubstr("has left")));
  }
  for (const launch::Round& round : nodes.join()) {
    EXPECT_EQ(round.number, 1);
    EXPECT_EQ(round.restarts_used, 0) << "it is no fault";
    EXPECT_EQ(round.layout.counts, (std::vector<int>{1, 2}));
  }
  EXPECT_TRUE(nodes[1].dispensable());
}

TEST_P(RendezvousConformance, ANewcomerBringsALargerRound) {
  Nodes nodes(GetParam());
  const auto open = [&](int node) -> launch::Rendezvous& {
    launch::NodesOptions options = options_of(node, 2, 3);
    options.last_call = milliseconds(200);  // of which a round with two nodes waits for more
    return nodes.add(std::move(options));
  };
  open(0), open(1);
  nodes.join();
  launch::Rendezvous& third = open(2);
  auto joined = std::async(std::launch::async, [&] { return third.join().or_throw(); });
  for (const int other : {0, 1}) {
    const launch::RoundEnd end = await_end(nodes[other]);
    EXPECT_EQ(end.kind, launch::RoundEnd::Kind::kMembership);
    EXPECT_TRUE(end.gentle) << "the ranks may save";
    EXPECT_THAT(end.text, HasSubstr("joined"));
  }
  auto first = std::async(std::launch::async, [&] { return nodes[0].join().or_throw(); });
  const launch::Round second = nodes[1].join().or_throw();
  EXPECT_EQ(second.number, 1);
  EXPECT_EQ(second.layout.nodes(), 3);
  EXPECT_EQ(first.get().nodes, second.nodes);
  EXPECT_EQ(joined.get().node, 2);
}

TEST_P(RendezvousConformance, ASpareIsSentHomeWhenTheJobEnds) {
  Nodes nodes(GetParam());
  nodes.add(2, 1, 2);
  nodes.join();
  launch::Rendezvous& spare = nodes.add(options_of(1, 1, 2));
  auto joined = std::async(std::launch::async, [&] { return spare.join(); });
  if (GetParam().numbered) {
    EXPECT_EQ(joined.get().error().code, Code::kMismatch) << "two nodes of one number";
  }
  for (const int node : {0, 1}) {
    EXPECT_FALSE(nodes[node].next_event().has_value());
    nodes[node].finished();
  }
  if (GetParam().numbered) return;
  const auto home = joined.get();
  ASSERT_FALSE(home.ok());
  EXPECT_EQ(home.error().code, Code::kAborted);
  ASSERT_TRUE(spare.round_end().has_value());
  EXPECT_EQ(spare.round_end()->kind, launch::RoundEnd::Kind::kEnded);
}

TEST_P(RendezvousConformance, TooFewNodesAreATimeoutThatNamesThem) {
  Nodes nodes(GetParam());
  launch::NodesOptions options = options_of(0, 2, 2);
  options.timeout = seconds(2);
  const auto joined = nodes.add(std::move(options)).join();
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().code, Code::kTimeout);
  EXPECT_THAT(joined.error().detail, AllOf(HasSubstr("1 of 2 nodes joined"), HasSubstr("host0")));
}

TEST_P(RendezvousConformance, NodesThatDisagreeAreAMismatch) {
  Nodes nodes(GetParam());
  nodes.add(options_of(0, 2, 2));
  nodes.add(options_of(1, 3, 3));
  const auto joined = nodes.each([](launch::Rendezvous& node) { return to_string(node.join().error()); });
  EXPECT_THAT(joined, testing::Each(AllOf(HasSubstr("Mismatch"), HasSubstr("give all nodes the same --nnodes"))));
}

TEST_P(RendezvousConformance, AnInterruptEndsTheWait) {
  Nodes nodes(GetParam());
  const Fd interrupt = make_eventfd().or_throw();
  launch::NodesOptions options = options_of(0, 2, 2);
  options.interrupt = interrupt.get();
  launch::Rendezvous& node = nodes.add(std::move(options));
  auto joined = std::async(std::launch::async, [&] { return node.join(); });
  const std::uint64_t one = 1;
  ASSERT_EQ(::write(interrupt.get(), &one, sizeof one), ssize_t(sizeof one));
  const auto result = joined.get();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kAborted);
  EXPECT_FALSE(node.round_end().has_value());
}

}  // namespace
}  // namespace tutti
