// The closed forms against the simulator, which runs the plans.
#include "tutti/planning/predict.h"

#include <gtest/gtest.h>

#include <map>

#include "tutti/planning/collectives/algorithms.h"
#include "tutti/planning/simulator/simulator.h"

namespace tutti {
namespace {

struct Way {
  Kind kind;
  Plan (*plan)(const Shape&);
};
const Way kWays[] = {{Kind::kAllReduce, all_reduce_recursive_doubling},
                     {Kind::kAllReduce, all_reduce_ring},
                     {Kind::kAllReduce, all_reduce_halving_doubling},
                     {Kind::kAllReduce, all_reduce_bruck},
                     {Kind::kAllReduce, all_reduce_mesh},
                     {Kind::kAllReduce, all_reduce_two_level},
                     {Kind::kBroadcast, broadcast_binomial},
                     {Kind::kBroadcast, broadcast_chain},
                     {Kind::kBroadcast, broadcast_van_de_geijn},
                     {Kind::kBroadcast, broadcast_two_level},
                     {Kind::kReduce, reduce_binomial},
                     {Kind::kReduce, reduce_chain},
                     {Kind::kReduce, reduce_van_de_geijn},
                     {Kind::kReduce, reduce_two_level},
                     {Kind::kAllGather, all_gather_ring},
                     {Kind::kAllGather, all_gather_bruck},
                     {Kind::kAllGather, all_gather_mesh},
                     {Kind::kAllGather, all_gather_two_level},
                     {Kind::kReduceScatter, reduce_scatter_ring},
                     {Kind::kReduceScatter, reduce_scatter_bruck},
                     {Kind::kReduceScatter, reduce_scatter_mesh},
                     {Kind::kReduceScatter, reduce_scatter_two_level},
                     {Kind::kAllToAll, all_to_all_pairwise},
                     {Kind::kAllToAll, all_to_all_bruck}};

bool gives_a_part_each(Kind kind) {
  return kind == Kind::kAllGather || kind == Kind::kReduceScatter || kind == Kind::kAllToAll;
}

// Of each verb: the algorithm that predict() takes for the fastest is not much slower than the one that is, in the
// simulator.
TEST(Predict, WhatItChoosesIsFast) {
  const std::vector<std::vector<int>> layouts = {
      {1, 1},       {1, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}, {2, 2}, {4, 4, 4, 4},
      {8, 8, 8, 8}, {3, 1, 2}, std::vector<int>(16, 4)};
  const LinkCost networks[] = {{10e-6, 12.5e9, 1e-6}, {5e-6, 5e9, 0.5e-6}, {100e-6, 1e9, 1e-6}};
  double worst = 0;
  for (const auto& layout : layouts) {
    const Hosts hosts = Hosts::of_sizes(layout);
    for (const LinkCost& between : networks) {
      const Network network{.between = between};
      for (std::size_t bytes = 256; bytes <= 64 << 20; bytes *= 16) {
        std::map<Kind, std::vector<std::pair<double, double>>> times;  // predicted, simulated
        for (const auto& [kind, plan] : kWays) {
          const bool apart = hosts.count() > 1 && hosts.most() > 1;
          const Algorithm algorithm = plan(Shape{.size = hosts.ranks(), .hosts = &hosts}).algorithm;
          if (algorithm == Algorithm::kTwoLevel && !apart) continue;
          const std::size_t count = bytes / (gives_a_part_each(kind) ? std::size_t(hosts.ranks()) : 1);
          const Scenario scenario{.kind = kind,
                                  .plan = plan,
                                  .shape = {.size = hosts.ranks(), .count = count, .element = 1, .hosts = &hosts},
                                  .network = network};
          times[kind].push_back(
              {predict(algorithm, kind, hosts, bytes, network), simulate(scenario).or_throw().seconds});
          if (std::getenv("TUTTI_SHOW"))
            printf("%s %s n=%d h=%d %.0e/%.0e %zu: predicted %.1f us, simulated %.1f us: %.2f\n", name(kind),
                   name(algorithm), hosts.ranks(), hosts.count(), between.latency, between.bandwidth, bytes,
                   times[kind].back().first * 1e6, times[kind].back().second * 1e6,
                   times[kind].back().first / times[kind].back().second);
        }
        for (const auto& [kind, of_kind] : times) {
          const double taken = std::min_element(of_kind.begin(), of_kind.end())->second;
          double best = taken;
          for (const auto& [predicted, simulated] : of_kind) best = std::min(best, simulated);
          worst = std::max(worst, taken / best);
          EXPECT_LT(taken / best, 1.6) << name(kind) << " of " << bytes << " bytes, " << hosts.ranks() << " ranks on "
                                       << hosts.count() << " hosts, " << between.latency << " s";
        }
      }
    }
  }
  RecordProperty("worst", std::to_string(worst));
  if (std::getenv("TUTTI_SHOW")) printf("worst %.2f\n", worst);
}

}  // namespace
}  // namespace tutti
