#include "tutti/planning/training/recommendation_plan.h"

#include <gmock/gmock.h>

#include <map>
#include <numeric>

#include "tutti/planning/training/cluster_presets.h"

namespace tutti {
namespace {

using testing::HasSubstr;

// Large tables and small ones, by their rows; 64 numbers a row.
RecommendationModel model_of(const std::vector<std::int64_t>& rows) {
  RecommendationModel model;
  for (const std::int64_t count : rows)
    model.tables.push_back({.name = "t" + std::to_string(model.tables.size()), .rows = count, .dim = 64, .lookups = 5});
  const auto vectors = std::int64_t(rows.size()) + 1;
  const std::int64_t bottom[] = {13, 512, 64}, top[] = {64 + vectors * (vectors - 1) / 2, 512, 256, 1};
  set_dense_layers(model, bottom, vectors, 64, true, top);
  return model;
}

const RecommendationModel kModel = model_of({1000000, 1000000, 5000, 5000, 5000, 200, 200});

Cluster cpus(int nodes, double bandwidth) {
  Cluster cluster = cluster_preset("cpu", nodes).or_throw();
  cluster.network.between.bandwidth = bandwidth;
  return cluster;
}

TEST(RecommendationPlan, IsTheFastestOfAllPlacements) {
  for (const int nodes : {1, 2, 3}) {
    const Cluster cluster = cpus(nodes, 1e9);
    const RecommendationPlans plans = plan_recommendation(kModel, cluster, 4096, {}).or_throw();
    ASSERT_FALSE(plans.best.empty());
    const double best = plans.best[0].time.step();
    for (const std::string& name : placement_names()) {
      const auto placement = place_by_name(name, kModel.tables, {.ranks = cluster.devices(), .batch = 4096}).or_throw();
      EXPECT_LE(best, evaluate(kModel, cluster, 4096, {}, name, placement).time.step()) << name;
    }
    for (const RankedPlacement& plan : plans.best) EXPECT_TRUE(check(plan.placement, kModel.tables).ok());
  }
}

// plan_tables() without the network sends rows of tables that had better be copied.
TEST(RecommendationPlan, CountsWhatASlowNetworkCarries) {
  const RecommendationPlans plans = plan_recommendation(kModel, cpus(2, 2e7), 4096, {}).or_throw();
  EXPECT_EQ(plans.best.at(0).name, kNetworkPlacement);
  const RecommendationOptions only_auto{.placements = {"auto"}};
  const RecommendationPlans automatic = plan_recommendation(kModel, cpus(2, 2e7), 4096, only_auto).or_throw();
  EXPECT_LT(plans.best[0].time.step(), 0.9 * automatic.best.at(0).time.step());
}

TEST(RecommendationPlan, ExchangesNoRowsOnOneNode) {
  const Cluster cluster = cpus(1, 1e9);
  const RecommendationOptions by_messages{.placements = {"table-wise"}, .shares_memory = false};
  const RecommendationOptions by_memory{.placements = {"table-wise"}};
  const auto sent = plan_recommendation(kModel, cluster, 4096, by_messages).or_throw().best.at(0);
  const auto shared = plan_recommendation(kModel, cluster, 4096, by_memory).or_throw().best.at(0);
  EXPECT_EQ(sent.placement, shared.placement);
  EXPECT_GT(sent.time.rows_out, 5 * shared.time.rows_out);
  EXPECT_LT(shared.time.rows_out, 1e-4);
}

TEST(RecommendationPlan, KeepsEachNumberOnce) {
  const RecommendationOptions options{.placements = {"table-wise", "row-wise", "column-wise"}};
  const RecommendationPlans plans = plan_recommendation(kModel, cpus(2, 1e9), 4096, options).or_throw();
  ASSERT_EQ(plans.best.size(), 3u);
  for (const RankedPlacement& plan : plans.best) {
    const double tables = std::accumulate(plan.memory.begin(), plan.memory.end(), 0.0,
                                          [](double sum, const auto& memory) { return sum + memory.tables; });
    EXPECT_EQ(tables, 4 * kModel.table_numbers()) << plan.name;
    for (const RecommendationMemory& memory : plan.memory) EXPECT_LE(memory.total(), plan.most_memory());
  }
}

TEST(RecommendationPlan, ReportsWhatDoesNotFit) {
  const double tables = 4 * kModel.table_numbers();
  const RecommendationPlans plans = plan_recommendation(kModel, cpus(1, 1e9), 512, {.memory = tables / 4}).or_throw();
  ASSERT_FALSE(plans.best.empty());
  for (const RankedPlacement& plan : plans.best) EXPECT_LE(plan.most_memory(), tables / 4);
  ASSERT_FALSE(plans.unfit.empty());
  EXPECT_EQ(plans.unfit.back().name, "replicated");
  EXPECT_THAT(planning::why_not_fit(plans.unfit.back(), plans.limit),
              HasSubstr("of them buffers; another placement would help"));
  EXPECT_TRUE(plan_recommendation(kModel, cpus(1, 1e9), 512, {.memory = 1e6}).or_throw().best.empty());
}

// bench/planner dlrm on two cores of a Xeon, in ms a step.
TEST(RecommendationPlan, ChoosesWhatWasMeasuredFastest) {
  const Cluster cluster{
      .name = "measured",
      .nodes = {{.devices = 2, .memory = 12e9, .cores = 2}},
      .network = {.inside = {.latency = 0, .bandwidth = 15.37e9, .overhead = 11.1e-6}},
      .device = {
          .peak = 0.1755e12, .share = 0.9, .product_start = 3.6e-6, .stream_bandwidth = 24.57e9, .launch = 5e-6}};
  const auto model_with = [](const std::vector<std::int64_t>& rows, double lookups,
                             const std::vector<std::int64_t>& bottom, std::vector<std::int64_t> top) {
    RecommendationModel model = model_of(rows);
    for (TableSpec& table : model.tables) table.lookups = lookups;
    const auto vectors = std::int64_t(rows.size()) + 1;
    top.insert(top.begin(), 64 + vectors * (vectors - 1) / 2);
    set_dense_layers(model, bottom, vectors, 64, true, top);
    return model;
  };
  const struct {
    const char* name;
    RecommendationModel model;
    std::map<std::string, double> milliseconds;
  } kMeasured[] = {
      {"equal tables",
       model_with(std::vector<std::int64_t>(8, 1000000), 50, {128, 64}, {128, 1}),
       {{"row-wise", 33.6}, {"auto", 34.0}, {"count", 35.3}, {"column-wise", 43.5}}},
      {"unequal tables",
       model_with({2000000, 500000, 100000, 20000, 5000, 1000, 200}, 20, {128, 256, 64}, {256, 128, 1}),
       {{"row-wise", 15.0}, {"table-wise", 15.0}, {"auto", 15.4}, {"column-wise", 17.3}, {"count", 18.1}}}};
  for (const auto& [name, model, milliseconds] : kMeasured) {
    const RecommendationPlans plans = plan_recommendation(model, cluster, 2048, {}).or_throw();
    double fastest = 1e9;
    for (const auto& [placement, measured] : milliseconds) fastest = std::min(fastest, measured);
    ASSERT_TRUE(milliseconds.contains(plans.best.at(0).name)) << name << ": " << plans.best[0].name;
    EXPECT_LE(milliseconds.at(plans.best[0].name), 1.05 * fastest) << name;
    std::map<std::string, double> predicted;
    for (const RankedPlacement& plan : plans.best) predicted[plan.name] = 1e3 * plan.time.step();
    for (const auto& [placement, measured] : milliseconds) {
      if (!predicted.contains(placement)) continue;  // equal to another one
      EXPECT_NEAR(predicted[placement] / measured, 1, 0.25) << name << ", " << placement;
    }
    EXPECT_GT(predicted["column-wise"], predicted["row-wise"]) << name;
  }
}

// The loops of interaction.cc on one core of a Xeon, for 1,024 samples. As a matrix product they would take 0.6 ms.
TEST(RecommendationPlan, CountsThePairsOfTheInteraction) {
  Cluster cluster = cpus(1, 1e9);
  cluster.nodes[0].devices = cluster.nodes[0].cores = 1;
  const auto dense_time = [&](bool dot) {
    RecommendationModel model = model_of(std::vector<std::int64_t>(26, 1000));
    const std::int64_t bottom[] = {13, 64}, top[] = {64 + (dot ? 27 * 26 / 2 : 0), 1};
    set_dense_layers(model, bottom, 27, 64, dot, top);
    return plan_recommendation(model, cluster, 1024, {}).or_throw().best.at(0).time.dense;
  };
  EXPECT_NEAR(1e3 * (dense_time(true) - dense_time(false)), 10.5, 2);
}

TEST(RecommendationPlan, SaysThatPartsOfColumnsAreLookedUpByAll) {
  const RecommendationOptions options{.placements = {"table-wise", "column-wise"}};
  const RecommendationModel model = model_of(std::vector<std::int64_t>(8, 1000000));
  const RecommendationPlans plans = plan_recommendation(model, cpus(1, 1e9), 4096, options).or_throw();
  ASSERT_EQ(plans.best.size(), 2u);
  EXPECT_EQ(plans.best[0].name, "table-wise");
  EXPECT_THAT(planning::why_slower(plans.best[0], plans.best[1]),
              HasSubstr("more in optimizer: its ranks look up 8.00 times as many rows"));
}

// A rank that has a node for itself does not make the others faster.
TEST(RecommendationPlan, RanksWithTheFewestCoresSetTheTimeOfLookups) {
  Cluster crowded = cpus(1, 1e9), mixed = crowded;
  crowded.nodes.push_back(crowded.nodes[0]);
  mixed.nodes.push_back(mixed.nodes[0]);
  crowded.nodes[1].devices = mixed.nodes[1].devices = 1;
  crowded.nodes[1].cores = 1;
  const RecommendationOptions options{.placements = {"table-wise"}};
  const auto time = [&](const Cluster& cluster) {
    return plan_recommendation(kModel, cluster, 1152, options).or_throw().best.at(0).time;
  };
  ASSERT_GT(mixed.nodes[1].cores, 1);
  EXPECT_EQ(time(mixed).lookups, time(crowded).lookups);
  EXPECT_EQ(time(mixed).optimizer, time(crowded).optimizer);
}

TEST(RecommendationPlan, NeedsCpus) {
  const auto refused = plan_recommendation(kModel, cluster_preset("h100-sxm").or_throw(), 512, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().detail, HasSubstr("tables are in the memory of the host"));
}

}  // namespace
}  // namespace tutti
