#include "tutti/planning/training/measured_runs.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "tutti/planning/training/step_time.h"

namespace tutti::planning {
namespace {

Cluster cluster_of_runs() {
  return {.name = "runs",
          .nodes = {{.count = 2, .devices = 4, .memory = 16e9}},
          .network = {.inside = {2e-6, 100e9, 1e-6}, .between = {10e-6, 5e9, 1e-6}, .cards = 2, .start = 20e-6},
          .device = {.peak = 100e12, .share = 0.6, .product_start = 20e-6, .stream_bandwidth = 1e12, .launch = 5e-6}};
}

MeasuredRun usual_run() {
  return {
      .model = with_defaults({.layers = 8, .hidden = 1024, .heads = 16, .vocabulary = 32000, .sequence_length = 512}),
      .plan = {},
      .global_batch = 64};
}

// Plans of up to 8 devices with the times that the planner predicts on a cluster.
std::string table_of(const Cluster& cluster) {
  std::string text = "# simulated\ntp,pp,dp,mbs,hidden,step_ms\n";
  for (const int tensor : {1, 2, 4})
    for (const int pipeline : {1, 2, 4})
      for (const int data : {1, 2, 4, 8})
        for (const int micro_batch : {1, 4}) {
          if (tensor * pipeline * data > 8) continue;
          for (const int hidden : {1024, 2048}) {
            const std::string row = fmt::format("{},{},{},{},{}", tensor, pipeline, data, micro_batch, hidden);
            const auto run =
                parse_measured_runs("tp,pp,dp,mbs,hidden,step_ms\n" + row + ",1", "x", usual_run()).or_throw()[0];
            text += fmt::format("{},{:.9f}\n", row, 1e3 * predict(run, cluster, megatron_runtime()));
          }
        }
  return text;
}

TEST(MeasuredRuns, AreReadWithWhatTheTableLacksFromTheOtherRun) {
  const auto runs =
      parse_measured_runs("# a comment\n\ntp, pp,dp,mbs,recompute,step_s\n2,2,1,4,full,0.25\n1,1,4,1,none,failed\n",
                          "runs.csv", usual_run())
          .or_throw();
  ASSERT_EQ(runs.size(), 2u);
  EXPECT_EQ(to_string(runs[0].plan), "tp=2,pp=2,mbs=4,recompute=full");
  EXPECT_EQ(runs[0].seconds, 0.25);
  EXPECT_EQ(runs[0].model.hidden, 1024);
  EXPECT_EQ(runs[1].seconds, 0);
}

TEST(MeasuredRuns, RejectWrongTablesInOneSentence) {
  const auto error_of = [](const char* text) {
    const auto runs = parse_measured_runs(text, "runs.csv", usual_run());
    return runs.ok() ? std::string() : to_string(runs.error());
  };
  EXPECT_EQ(error_of("tp,pp,dp,mb,step_s\n"),
            "InvalidArgument: runs.csv:1: there is no column 'mb' (hint: did you mean mbs?)");
  EXPECT_EQ(error_of("tp,pp\n1,1\n"),
            "InvalidArgument: runs.csv:1: one column must be the measured time (hint: step_s in seconds, or step_ms)");
  EXPECT_EQ(error_of("tp,step_s\n1\n"), "InvalidArgument: runs.csv:2: 1 cells, expected 2");
  EXPECT_EQ(error_of("tp,step_s\n1,slow\n"),
            "InvalidArgument: runs.csv:2: step_s needs a time above 0 or 'failed', not 'slow'");
  EXPECT_EQ(error_of("dp,mbs,step_s\n3,1,1\n"),
            "InvalidArgument: runs.csv:2: a batch of 64 cannot be divided by dp 3 x mbs 1");
  EXPECT_EQ(error_of("dp,mbs,step_s\n1048576,1048576,1\n"),
            "InvalidArgument: runs.csv:2: a batch of 64 cannot be divided by dp 1048576 x mbs 1048576");
  EXPECT_EQ(error_of("dp,pp,step_s\n1048576,8,1\n"),
            "InvalidArgument: runs.csv:2: tp x cp x pp x dp is above 1048576 devices");
  EXPECT_EQ(error_of("# nothing\n"), "InvalidArgument: runs.csv: there are no runs");
  EXPECT_EQ(error_of("tp,dp,tp,step_s\n1,1,2,1\n"), "InvalidArgument: runs.csv:1: there are two columns 'tp'");
  EXPECT_EQ(error_of("tp;dp;step_s\n1;1;1\n"),
            "InvalidArgument: runs.csv:1: cells are separated by commas, and there are none");
}

TEST(MeasuredRuns, OfASpreadsheetAreRead) {
  const auto runs = parse_measured_runs("\xEF\xBB\xBFtp,dp,step_s\r\n2,2,0.5\r\n", "runs.csv", usual_run()).or_throw();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].plan.tensor, 2);
  EXPECT_DOUBLE_EQ(runs[0].seconds, 0.5);
}

TEST(MeasuredRuns, AgreeWithTheClusterThatMadeThem) {
  const auto runs = parse_measured_runs(table_of(cluster_of_runs()), "runs.csv", usual_run()).or_throw();
  const Agreement agreement = compare(runs, cluster_of_runs(), megatron_runtime(), 16e9);
  EXPECT_EQ(agreement.runs, int(runs.size()));
  EXPECT_NEAR(agreement.mean_error, 0, 1e-6);
  EXPECT_NEAR(agreement.tau, 1, 1e-9);
  EXPECT_EQ(agreement.worst_regret, 0);
  EXPECT_GE(agreement.groups, 4);

  Cluster slow = cluster_of_runs();
  slow.device.share /= 2;
  slow.network.inside.bandwidth /= 10;
  EXPECT_GT(compare(runs, slow, megatron_runtime(), 16e9).mean_error, 0.3);
}

// A table has runs of fewer and of more devices than the cluster has.
TEST(MeasuredRuns, ArePredictedOnTheNodesOfTheClusterInTheirOrder) {
  const auto cluster_with = [](const std::vector<int>& devices) {
    Cluster cluster = cluster_of_runs();
    cluster.nodes.clear();
    for (const int here : devices) cluster.nodes.push_back({.count = 1, .devices = here, .memory = 16e9});
    return cluster;
  };
  for (const auto& [text, used] : {std::pair("tp=4,dp=2,mbs=4", std::vector{6, 2}),  // the second group crosses
                                   {"tp=2,pp=2,mbs=4", std::vector{4}},
                                   {"tp=2,dp=4,mbs=4", std::vector{6, 2}},
                                   {"tp=4,dp=4,mbs=4", std::vector{6, 2, 2, 2, 2, 2}}}) {
    MeasuredRun run = usual_run();
    run.plan = parse_parallel_plan(text).or_throw();
    const StepModel model(run.model, cluster_with(used), megatron_runtime(), run.global_batch);
    EXPECT_DOUBLE_EQ(predict(run, cluster_with({6, 2}), megatron_runtime()), model.exact_step(run.plan)) << text;
  }
}

TEST(MeasuredRuns, OfMoreNodesNeedANetworkBetweenThem) {
  Cluster one = cluster_of_runs();
  one.nodes[0].count = 1;
  one.network.between = {};
  MeasuredRun run = usual_run();
  run.plan.data = 4;
  EXPECT_GT(predict(run, one, megatron_runtime()), 0);
  run.plan.data = 8;
  const auto predicted = as_result([&] { return predict(run, one, megatron_runtime()); });
  ASSERT_FALSE(predicted.ok());
  EXPECT_EQ(predicted.error().detail, "runs of 8 devices: cluster runs has no bandwidth between nodes");
}

TEST(MeasuredRuns, CalibrateAClusterWithinBounds) {
  Cluster truth = cluster_of_runs();
  const auto runs = parse_measured_runs(table_of(truth), "runs.csv", usual_run()).or_throw();
  Cluster guess = truth;
  guess.device.share = 0.9;
  guess.device.product_start = 40e-6;
  guess.network.start = 50e-6;
  const double before = compare(runs, guess, megatron_runtime(), 16e9).mean_error;
  const Cluster found = calibrated(runs, guess, megatron_runtime());
  EXPECT_LT(compare(runs, found, megatron_runtime(), 16e9).mean_error, 0.1 * before);
  EXPECT_NEAR(found.device.share / truth.device.share, 1, 0.1);
  guess.device.share = 0.1;  // six times too slow, and no figure moves by more than three
  EXPECT_LE(calibrated(runs, guess, megatron_runtime()).device.share, 0.3 + 1e-12);
}

}  // namespace
}  // namespace tutti::planning
