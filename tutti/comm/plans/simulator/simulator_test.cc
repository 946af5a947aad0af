#include "tutti/comm/plans/simulator/simulator.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <ostream>

#include "tutti/comm/plans/algorithms.h"
#include "tutti/comm/plans/simulator/bound.h"

namespace tutti::comm {
namespace {

using testing::HasSubstr;

struct Verb {
  Kind kind;
  Plan (*plan)(const Shape&);
};
void PrintTo(const Verb& verb, std::ostream* out) {
  const Hosts hosts = Hosts::of_sizes(std::vector<int>{1, 1});
  *out << name(verb.kind) << ' ' << name(verb.plan(Shape{.size = 2, .hosts = &hosts}).algorithm);
}

// All ranks on one host, each on its own host, and uneven layouts.
std::vector<Hosts> layouts(int size) {
  std::vector<std::vector<int>> of(5, std::vector<int>(std::size_t(size), 0));
  for (int r = 0; r < size; ++r) {
    of[1][r] = r;
    of[2][r] = r % 2;
    of[3][r] = r > 0;
    of[4][r] = r * r % 5;
  }
  return std::vector<Hosts>(of.begin(), of.end());
}

std::vector<Verb> verbs() {
  std::vector<Verb> all;
  for (const AlgorithmRow& row : algorithm_table())
    if (!is_uneven(row.kind)) all.push_back({row.kind, row.plan});
  return all;
}

constexpr double kRounding = 1 - 1e-12;  // tolerance for sums in another order

Outcome run(const Scenario& scenario) { return simulate(scenario).or_throw(); }

class EveryAlgorithm : public testing::TestWithParam<Verb> {};

// Both kinds of Contents, expressions and real elements, check each plan. Streams hold any number of bytes, or so few
// that a plan that relies on buffering stalls.
constexpr std::size_t kStreamBytes[] = {Network::kUnbounded, 32 + 11};  // the header of the first message and 11 bytes

TEST_P(EveryAlgorithm, IsRightAndNotBelowTheBound) {
  const auto [kind, plan] = GetParam();
  for (const int size : {1, 2, 3, 4, 7, 8, 13}) {
    for (const std::size_t count : {0, 1, size - 1, size, 1001}) {
      for (const bool in_place : {false, true}) {
        int root = int(count) % size;
        for (const Hosts& hosts : layouts(size)) {
          for (const std::size_t stream_bytes : kStreamBytes) {
            const std::size_t element = in_place ? 4 : 1;
            Scenario scenario{.kind = kind,
                              .plan = plan,
                              .shape = {.size = size,
                                        .root = root,
                                        .count = count,
                                        .element = element,
                                        .in_place = in_place,
                                        .segment = count > 100 ? 500u : 256u << 10,
                                        .hosts = &hosts},
                              .with_elements = true};
            scenario.network.jitter = 0.5;
            scenario.network.stream_bytes = stream_bytes;
            scenario.seed = std::uint64_t(size) * 31 + count;
            const Outcome outcome = run(scenario);
            SCOPED_TRACE(testing::Message()
                         << size << " ranks, " << count << " elements, in place " << in_place << ", " << hosts.count()
                         << " hosts, root " << root << ", streams of " << stream_bytes << " bytes");
            EXPECT_TRUE(outcome.finished) << explain(scenario, outcome);
            EXPECT_EQ(outcome.wrong, "");
            EXPECT_GE(outcome.seconds, bound_of(kind, scenario.shape, scenario.network).bandwidth * kRounding);
            if (size > 1 && (count > 0 || kind == Kind::kBarrier)) {
              EXPECT_GE(outcome.seconds, bound_of(kind, scenario.shape, scenario.network).seconds() * kRounding);
            }
          }
          root = (root + 1) % size;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Plans, EveryAlgorithm, testing::ValuesIn(verbs()));

// Every third part is empty. In an all_to_all the parts that a rank sends differ from rank to rank.
TEST(UnevenParts, IsRightForEveryAlgorithmWithSplits) {
  for (const AlgorithmRow& row : algorithm_table())
    for (const int size : {1, 2, 3, 4, 7, 8})
      for (const bool in_place : {false, true})
        for (const Hosts& hosts : layouts(size)) {
          if (!row.uneven || (in_place && row.kind == Kind::kAllToAll)) continue;
          const std::size_t stream_bytes = kStreamBytes[hosts.count() % 2];
          std::vector<std::vector<std::size_t>> splits(row.kind == Kind::kAllToAll ? std::size_t(size) : 1);
          for (std::size_t from = 0; from < splits.size(); ++from)
            for (int to = 0; to < size; ++to)
              splits[from].push_back(row.kind == Kind::kAllToAll ? (from * 5 + std::size_t(to) * 3) % 7
                                     : to % 3 == 1               ? 0
                                                                 : std::size_t(to) + 2);
          const Scenario scenario{
              .kind = row.kind,
              .plan = row.plan,
              .shape =
                  {.size = size, .root = size / 2, .element = 8, .in_place = in_place, .segment = 16, .hosts = &hosts},
              .splits = splits,
              .network = {.stream_bytes = stream_bytes},
              .with_elements = true};
          const Outcome outcome = run(scenario);
          SCOPED_TRACE(testing::Message() << name(row.kind) << " by " << name(row.algorithm) << ", " << size
                                          << " ranks on " << hosts.count() << " hosts, in place " << in_place);
          EXPECT_TRUE(outcome.finished) << explain(scenario, outcome);
          EXPECT_EQ(outcome.wrong, "");
        }
}

// Equal links with nothing but alpha, beta and gamma: the simulated times must equal the textbook formulas.
Network by_the_book() {
  Network network;
  network.between = {.latency = 10e-6, .bandwidth = 1e9};
  network.add_bandwidth = 4e9;
  network.header = 0;
  return network;
}
constexpr double kSimulatedAlpha = 10e-6, kBeta = 1e-9, kGamma = 0.25e-9;

double seconds_of(Kind kind, Plan (*plan)(const Shape&), int size, std::size_t bytes) {
  const Outcome outcome =
      run({.kind = kind,
           .plan = plan,
           .shape = {.size = size, .count = bytes / 4, .element = 4, .segment = std::size_t(1) << 40},
           .network = by_the_book()});
  EXPECT_TRUE(outcome.right()) << outcome.wrong;
  return outcome.seconds;
}

TEST(Cost, MatchesTheTextbookFormulas) {
  constexpr double n = 16, m = 4, s = 1 << 20, each = s / n;
  const auto near = [](double expected) { return testing::DoubleNear(expected, expected * 1e-9); };
  EXPECT_THAT(seconds_of(Kind::kAllReduce, all_reduce_ring, n, s),
              near(2 * (n - 1) * (kSimulatedAlpha + each * kBeta) + (n - 1) * each * kGamma));
  EXPECT_THAT(seconds_of(Kind::kAllReduce, all_reduce_recursive_doubling, n, s),
              near(m * (kSimulatedAlpha + s * kBeta + s * kGamma)));
  EXPECT_THAT(seconds_of(Kind::kAllReduce, all_reduce_halving_doubling, n, s),
              near(2 * m * kSimulatedAlpha + 2 * (n - 1) * each * kBeta + (n - 1) * each * kGamma));
  // The additions overlap with the bytes that still arrive, except for the last addition.
  EXPECT_THAT(seconds_of(Kind::kAllReduce, all_reduce_mesh, n, s),
              near(2 * kSimulatedAlpha + 2 * (n - 1) * each * kBeta + each * kGamma));
  EXPECT_THAT(seconds_of(Kind::kBroadcast, broadcast_van_de_geijn, n, s),
              near(2 * m * kSimulatedAlpha + 2 * (n - 1) * each * kBeta));
  EXPECT_THAT(seconds_of(Kind::kAllGather, all_gather_ring, n, each), near((n - 1) * (kSimulatedAlpha + each * kBeta)));
  EXPECT_THAT(seconds_of(Kind::kAllToAll, all_to_all_bruck, n, each), near(m * (kSimulatedAlpha + s / 2 * kBeta)));
  EXPECT_THAT(seconds_of(Kind::kBarrier, barrier_dissemination, n, 0), near(m * (kSimulatedAlpha + kBeta)));
}

// With segments smaller than a message the hops and the additions overlap with the bytes that still arrive.
TEST(Cost, BruckCostsWhatHalvingCostsForAnySize) {
  for (const int size : {8, 13, 16, 60}) {
    const double n = size, m = std::ceil(std::log2(n)), s = 1 << 20;
    const Outcome outcome = run({.plan = all_reduce_bruck,
                                 .shape = {.size = size, .count = 1 << 18, .element = 4, .segment = 16 << 10},
                                 .network = by_the_book()});
    EXPECT_TRUE(outcome.right()) << outcome.wrong;
    EXPECT_LE(outcome.seconds, 2 * m * kSimulatedAlpha + 2 * (n - 1) / n * s * kBeta + (n - 1) / n * s * kGamma)
        << size;
    EXPECT_GE(outcome.seconds, (kSimulatedAlpha + 2 * (n - 1) / n * s * kBeta) * kRounding) << size;
  }
}

TEST(Cost, CountsRoundsMessagesAndBytes) {
  const auto counted = [](Plan (*plan)(const Shape&)) {
    return run({.plan = plan, .shape = {.size = 16, .count = 1600, .element = 4}});
  };
  const Outcome ring = counted(all_reduce_ring), mesh = counted(all_reduce_mesh);
  EXPECT_EQ(ring.rounds, 30);
  EXPECT_EQ(ring.traffic[3].messages, 30u);
  EXPECT_EQ(ring.traffic[3].bytes, 30u * 400);
  EXPECT_EQ(ring.traffic[3].bytes_between, 30u * 400);
  EXPECT_EQ(ring.traffic[3].added, 15u * 400);
  EXPECT_EQ(mesh.rounds, 2);
  EXPECT_EQ(mesh.traffic[3].messages, 30u);
}

TEST(Network, RanksOfAHostShareItsCards) {
  // Both ranks of host 0 send one MiB to host 1 at once.
  const std::vector<int> sizes = {2, 2};
  const Hosts hosts = Hosts::of_sizes(sizes);
  const auto shift = [](const Shape& shape) {
    PlanBuilder plan(Algorithm::kDirect);
    if (shape.rank < 2)
      plan.send(shape.rank + 2, {Area::kIn, 0, 1 << 20});
    else
      plan.recv(shape.rank - 2, {Area::kOut, 0, 1 << 20});
    return std::move(plan).build();
  };
  Scenario scenario{.plan = shift, .shape = {.size = 4, .count = 1 << 20, .hosts = &hosts}, .network = by_the_book()};
  EXPECT_NEAR(run(scenario).seconds, kSimulatedAlpha + 2 * (1 << 20) * kBeta, 1e-12);
  scenario.network.cards = 2;
  EXPECT_NEAR(run(scenario).seconds, kSimulatedAlpha + (1 << 20) * kBeta, 1e-12);
}

TEST(Simulator, TheSameSeedGivesTheSameRun) {
  Scenario scenario{.plan = all_reduce_bruck, .shape = {.size = 13, .count = 100000, .element = 4, .segment = 4096}};
  scenario.network.jitter = 0.3;
  scenario.seed = 7;
  const Outcome first = run(scenario), again = run(scenario);
  EXPECT_EQ(first.fingerprint, again.fingerprint);
  EXPECT_EQ(first.seconds, again.seconds);
  EXPECT_EQ(first.ended, again.ended);
  scenario.seed = 8;
  const Outcome other = run(scenario);
  EXPECT_NE(first.fingerprint, other.fingerprint);
  EXPECT_TRUE(other.right());
}

// Both ranks send before they receive, into memory that they send from.
TEST(Simulator, AFullStreamHoldsUpTheSender) {
  const auto exchange = [](const Shape& shape) {
    PlanBuilder plan(Algorithm::kDirect);
    plan.send(1 - shape.rank, {Area::kOut, 0, 100});
    plan.recv(1 - shape.rank, {Area::kOut, 0, 100});
    return std::move(plan).build();
  };
  Scenario scenario{.plan = exchange, .shape = {.size = 2, .count = 100}, .network = by_the_book()};
  scenario.network.stream_bytes = 100;
  EXPECT_TRUE(run(scenario).finished);
  scenario.network.stream_bytes = 60;
  const Outcome outcome = run(scenario);
  EXPECT_FALSE(outcome.finished);
  EXPECT_EQ(explain(scenario, outcome),
            "rank 0 cannot send to rank 1, which does not receive 40 bytes; rank 1 cannot send to rank 0, which does "
            "not receive 40 bytes; ranks 0, 1 wait");
}

TEST(Simulator, RejectsPlansThatDoNotFitInMemory) {
  const auto result = simulate({.plan = all_reduce_mesh, .shape = {.size = 20000, .count = 20000}});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, Code::kLimit);
  EXPECT_THAT(to_string(result.error()),
              HasSubstr("the plans of 20000 ranks have 1599920000 steps; the simulator holds"));
}

Scenario ring_of_eight() { return {.plan = all_reduce_ring, .shape = {.size = 8, .count = 8000, .element = 4}}; }

TEST(Faults, ADeathLeavesItsPeersWaiting) {
  Scenario scenario = ring_of_eight();
  scenario.faults.deaths = {{.rank = 3, .at = 25e-6}};
  const Outcome outcome = run(scenario);
  EXPECT_FALSE(outcome.finished);
  EXPECT_FALSE(outcome.right());
  ASSERT_EQ(outcome.waiting.size(), 7u);
  for (const Waiting& waiting : outcome.waiting) {
    EXPECT_EQ(waiting.peer, (waiting.rank + 7) % 8);
    EXPECT_EQ(waiting.why, waiting.rank == 4 ? Waiting::Why::kDead : Waiting::Why::kWaits) << waiting.rank;
  }
  EXPECT_EQ(explain(scenario, outcome), "rank 3 died at 25 us; ranks 0-2, 4-7 wait");
}

TEST(Faults, ADeathAfterTheEndChangesNothing) {
  Scenario scenario = ring_of_eight();
  const double good = run(scenario).seconds;
  scenario.faults.deaths = {{.rank = 3, .at = 1}};
  EXPECT_TRUE(run(scenario).right());
  EXPECT_EQ(run(scenario).seconds, good);
}

TEST(Faults, ACutLinkIsNamed) {
  Scenario scenario = ring_of_eight();
  scenario.faults.cuts = {{.a = 6, .b = 5, .at = 0}};
  const Outcome outcome = run(scenario);
  EXPECT_FALSE(outcome.finished);
  EXPECT_EQ(explain(scenario, outcome), "the link from rank 5 to rank 6 was cut; ranks 0-7 wait");
  scenario.faults.cuts = {{.a = 6, .b = 2, .at = 0}};
  EXPECT_TRUE(run(scenario).right()) << "the ring does not use that link";
}

TEST(Faults, ASlowRankHoldsUpTheRing) {
  Scenario scenario = ring_of_eight();
  const double good = run(scenario).seconds;
  scenario.faults.slow = {{.rank = 2, .factor = 50}};
  const Outcome outcome = run(scenario);
  EXPECT_TRUE(outcome.right());
  EXPECT_GT(outcome.seconds, 2 * good);
}

// A plan that is damaged on purpose, on rank 2 of 5.
class BrokenPlan : public testing::Test {
 protected:
  Outcome broken(Kind kind, Plan (*plan)(const Shape&), const std::function<void(Plan&)>& damage,
                 bool with_elements = false) {
    scenario_ = {.kind = kind,
                 .plan =
                     [=](const Shape& shape) {
                       Plan made = plan(shape);
                       if (shape.rank == 2) damage(made);
                       return made;
                     },
                 .shape = {.size = 5, .count = 1000, .element = 4},
                 .with_elements = with_elements};
    return run(scenario_);
  }
  Scenario scenario_;
};

Step& first(Plan& plan, StepKind kind, int skip = 0) {
  for (Step& step : plan.steps) {
    if (step.kind == kind && skip-- == 0) return step;
  }
  throw std::logic_error("no such step");
}

TEST_F(BrokenPlan, AForgottenAddition) {
  const Outcome outcome = broken(Kind::kAllReduce, all_reduce_ring,
                                 [](Plan& plan) { first(plan, StepKind::kRecvReduce).kind = StepKind::kRecv; });
  EXPECT_TRUE(outcome.finished);
  EXPECT_EQ(outcome.wrong, "rank 0, out byte 800: not every rank was added once");
}

TEST_F(BrokenPlan, AnotherChunk) {
  const Outcome outcome =
      broken(Kind::kAllReduce, all_reduce_ring, [](Plan& plan) { first(plan, StepKind::kSend).from.offset = 0; });
  EXPECT_EQ(outcome.wrong, "rank 0, out byte 1600: not every rank was added once");
}

TEST_F(BrokenPlan, BytesThatNoStepWrote) {
  const Outcome outcome =
      broken(Kind::kAllGather, all_gather_ring, [](Plan& plan) { first(plan, StepKind::kCopy).into.offset = 0; });
  EXPECT_EQ(outcome.wrong, "rank 0, out byte 8000: was never written");
}

TEST_F(BrokenPlan, APartInTheWrongPlace) {
  const Outcome outcome = broken(Kind::kAllToAll, all_to_all_pairwise,
                                 [](Plan& plan) { first(plan, StepKind::kRecv).into.offset += 4000; });
  EXPECT_THAT(outcome.wrong, HasSubstr("rank 2, out byte 4000: was never written"));
}

TEST_F(BrokenPlan, AnInputThatIsOverwritten) {
  const Outcome outcome = broken(Kind::kAllReduce, all_reduce_ring, [](Plan& plan) {
    first(plan, StepKind::kRecvReduce).into.area = Area::kIn;
    first(plan, StepKind::kSend, 1).from.area = Area::kIn;
  });
  EXPECT_EQ(outcome.wrong, "rank 2, in byte 800: not what rank 2 gave");
}

TEST_F(BrokenPlan, AnotherOrderOfAdditions) {
  for (const bool with_elements : {false, true}) {
    const Outcome outcome = broken(
        Kind::kAllReduce,
        [](const Shape& shape) {
          // Every rank sends its vector to every other rank, and adds the vectors in rank order.
          PlanBuilder plan(Algorithm::kDirect);
          const Range in{Area::kIn, 0, 4000}, out{Area::kOut, 0, 4000};
          const Range other = plan.scratch(4000);
          for (int peer = 0; peer < 5; ++peer) {
            if (peer != shape.rank) plan.send(peer, in);
          }
          plan.copy({Area::kIn, 0, 4000}, out);
          for (int peer = 0; peer < 5; ++peer) {
            if (peer == shape.rank) continue;
            plan.recv(peer, other);
            plan.reduce(other, out);
          }
          return std::move(plan).build();
        },
        [](Plan&) {}, with_elements);
    EXPECT_EQ(outcome.wrong, "rank 1 added in a different order than rank 0");
  }
}

TEST_F(BrokenPlan, AMessageThatIsNotSent) {
  const Outcome outcome = broken(Kind::kAllGather, all_gather_ring, [](Plan& plan) { plan.steps.pop_back(); });
  EXPECT_THAT(outcome.wrong, HasSubstr("rank 2"));
  const Outcome unsent = broken(Kind::kScatter, scatter_direct, [](Plan&) {});
  EXPECT_TRUE(unsent.right());
  const Outcome short_by_one = broken(Kind::kReduce, reduce_chain, [](Plan& plan) { plan.steps.pop_back(); });
  EXPECT_FALSE(short_by_one.finished);
  EXPECT_EQ(explain(scenario_, short_by_one),
            "rank 2 ended without sending 4032 bytes that rank 1 expects; ranks 0, 1 wait");
}

TEST_F(BrokenPlan, RealElementsDetectItToo) {
  const Outcome outcome = broken(
      Kind::kAllGather, all_gather_ring,
      [](Plan& plan) { std::swap(plan.steps[1].from.offset, plan.steps[3].from.offset); }, true);
  EXPECT_NE(outcome.wrong, "");
}

// Every host's card sends the minimum of bytes, however many ranks a host has.
TEST(TwoLevel, SendsTheMinimumOfBytesBetweenHosts) {
  for (const std::vector<int>& sizes : {std::vector<int>{4, 4, 4, 4}, {3, 1, 2, 5}, {8, 1}}) {
    const Hosts hosts = Hosts::of_sizes(sizes);
    const std::size_t bytes = std::size_t(1) << 20, h = sizes.size();
    const Outcome outcome = run({.plan = all_reduce_two_level,
                                 .shape = {.size = hosts.ranks(), .count = bytes / 4, .element = 4, .hosts = &hosts}});
    EXPECT_TRUE(outcome.right()) << outcome.wrong;
    for (int host = 0; host < hosts.count(); ++host) {
      double sent = 0;
      for (const int rank : hosts.ranks_on(host)) sent += double(outcome.traffic[rank].bytes_between);
      EXPECT_NEAR(sent, 2.0 * double(h - 1) / double(h) * double(bytes), 64) << host;
    }
  }
}

TEST(Simulator, FiveHundredRanksOnTwoLevels) {
  const Hosts hosts = Hosts::of_sizes(std::vector<int>(64, 8));
  const Outcome outcome =
      run({.plan = all_reduce_two_level, .shape = {.size = 512, .count = 16 << 20, .element = 4, .hosts = &hosts}});
  EXPECT_TRUE(outcome.right()) << outcome.wrong;
  EXPECT_LE(outcome.rounds, 2 + 2 * 6);
}

TEST(Simulator, ThreeHundredRanksOnARing) {
  const Outcome outcome = run({.plan = all_reduce_ring, .shape = {.size = 300, .count = 16 << 20, .element = 4}});
  EXPECT_TRUE(outcome.right()) << outcome.wrong;
  EXPECT_EQ(outcome.rounds, 598);
}

}  // namespace
}  // namespace tutti::comm
