#include "tutti/planning/training/measured_placements.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/planning/training/cluster_presets.h"

namespace tutti::planning {
namespace {

PlacementQuestion question_of_runs() {
  PlacementQuestion question;
  for (const std::int64_t rows : {1000000, 1000000, 5000, 200})
    question.model.tables.push_back(
        {.name = "t" + std::to_string(question.model.tables.size()), .rows = rows, .dim = 64, .lookups = 20});
  const std::int64_t bottom[] = {13, 512, 64}, top[] = {64 + 5 * 4 / 2, 512, 1};
  set_dense_layers(question.model, bottom, 5, 64, true, top);
  return question;
}

Cluster two_nodes() { return cluster_preset("cpu", 2).or_throw(); }

const MeasuredPlacement kUsual{.name = "auto", .devices = 16, .global_batch = 4096};

std::vector<MeasuredPlacement> parsed(const std::string& text, const MeasuredPlacement& other = kUsual) {
  return parse_measured_placements(text, "runs.csv", question_of_runs(), two_nodes(), other).or_throw();
}

// All placements for several batches and numbers of devices, with the times that the planner predicts on a cluster.
std::string placements_table(const Cluster& cluster) {
  std::string text = "placement,devices,gbs,step_ms\n";
  for (const std::string& name : placement_names())
    for (const int devices : {4, 16})
      for (const int batch : {2048, 8192}) {
        const std::string row = fmt::format("{},{},{}", name, devices, batch);
        const MeasuredPlacement run = parsed("placement,devices,gbs,step_s\n" + row + ",1")[0];
        const RankedPlacement plan =
            evaluate(question_of_runs().model, with_devices(cluster, devices), batch, {}, name, run.placement);
        text += fmt::format("{},{:.17g}\n", row, 1e3 * plan.time.step());
      }
  return text;
}

TEST(MeasuredPlacements, AreReadWithWhatTheTableLacksFromTheOtherRun) {
  const auto runs = parsed("placement,devices,step_ms\nrow-wise,4,12.5\nnetwork,16,failed\n");
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(runs[0].global_batch, 4096);
  EXPECT_DOUBLE_EQ(runs[0].seconds, 0.0125);
  ASSERT_EQ(runs[0].placement.tables.size(), 4u);
  EXPECT_EQ(runs[0].placement.tables[0].sharding, TableSharding::kRowWise);
  EXPECT_EQ(runs[0].placement.tables[0].shards.size(), 4u);
  EXPECT_EQ(runs[1].seconds, 0);
}

TEST(MeasuredPlacements, RejectWrongTablesInOneSentence) {
  const auto error_of = [](const char* text, const MeasuredPlacement& other = kUsual) {
    const auto runs = parse_measured_placements(text, "runs.csv", question_of_runs(), two_nodes(), other);
    return runs.ok() ? std::string() : to_string(runs.error());
  };
  EXPECT_EQ(error_of("placment,step_s\n"),
            "InvalidArgument: runs.csv:1: there is no column 'placment' (hint: did you mean placement?)");
  EXPECT_EQ(error_of("placement,step_s\nrowwise,1\n"),
            "InvalidArgument: runs.csv:2: there is no placement 'rowwise' (hint: did you mean row-wise?)");
  EXPECT_EQ(error_of("placement,step_s\nauto,1\n", {.name = "auto", .devices = 16}),
            "InvalidArgument: runs.csv:2: there is no global batch (hint: a column gbs, or --global-batch)");
  EXPECT_EQ(error_of("placement,devices,step_s\nauto,1048577,1\n"),
            "InvalidArgument: runs.csv:2: 1048577 devices, expected at most 1048576");
  EXPECT_EQ(error_of("placement,devices,step_s\nnetwork,1,1\n"),
            "InvalidArgument: runs.csv:2: placement network cannot be made for devices 1");
}

TEST(MeasuredPlacements, AgreeWithTheClusterThatMadeThem) {
  const auto runs = parsed(placements_table(two_nodes()));
  const Agreement agreement = compare(runs, question_of_runs(), two_nodes());
  EXPECT_EQ(agreement.runs, int(runs.size()));
  EXPECT_NEAR(agreement.mean_error, 0, 1e-6);
  EXPECT_NEAR(agreement.tau, 1, 1e-9);
  EXPECT_EQ(agreement.groups, 4);  // batches by devices
  EXPECT_EQ(agreement.worst_regret, 0);
  PlacementQuestion little = question_of_runs();
  little.options.memory = 1e8;
  EXPECT_GT(compare(runs, little, two_nodes()).misjudged, 0);
}

TEST(MeasuredPlacements, RegretIsThatOfTwoPlacementsOrMore) {
  const Agreement agreement =
      compare(parsed("placement,gbs,step_ms\nrow-wise,4096,100\nreplicated,4096,50\nauto,2048,1\n"), question_of_runs(),
              two_nodes());
  EXPECT_EQ(agreement.groups, 1);
  EXPECT_DOUBLE_EQ(agreement.worst_regret, 1);  // row-wise would be taken
}

TEST(MeasuredPlacements, CalibrateACluster) {
  Cluster guess = two_nodes();
  guess.device.stream_bandwidth *= 2;
  guess.network.between.bandwidth /= 2;
  const auto runs = parsed(placements_table(two_nodes()));
  const double before = compare(runs, question_of_runs(), guess).mean_error;
  const Cluster found = calibrated(runs, question_of_runs(), guess);
  EXPECT_LT(compare(runs, question_of_runs(), found).mean_error, 0.2 * before);
}

}  // namespace
}  // namespace tutti::planning
