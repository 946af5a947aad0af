#include "tutti/planning/training/step_time.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tutti/planning/training/cluster_presets.h"
#include "tutti/planning/training/device_time.h"

namespace tutti::planning {
namespace {

Cluster a100(int devices) { return cluster_preset("a100-sxm", (devices + 7) / 8).or_throw(); }

TransformerConfig gpt(int layers, int hidden, int heads) {
  return with_defaults(
      {.layers = layers, .hidden = hidden, .heads = heads, .vocabulary = 51200, .sequence_length = 2048});
}

struct Published {
  const char* name;
  int heads, hidden, layers, tensor, pipeline, chunks, devices, batch, micro_batch;
  double teraflops;        // of a device, by the formula of arXiv:2104.04473, or
  double seconds;          // of a step
  bool selective = false;  // with sequence parallelism; else full recomputation
};

// Narayanan et al. 2021 (arXiv:2104.04473), tables 1 and 2 (PTD-P); Korthikanti et al. 2022 (arXiv:2205.05198),
// table 5.
const Published kPublished[] = {{"1.7B", 24, 2304, 24, 1, 1, 1, 32, 512, 16, 137, 0},
                                {"3.6B", 32, 3072, 30, 2, 1, 1, 64, 512, 16, 138, 0},
                                {"7.5B", 32, 4096, 36, 4, 1, 1, 128, 512, 16, 142, 0},
                                {"18.4B", 48, 6144, 40, 8, 1, 1, 256, 1024, 8, 135, 0},
                                {"39.1B", 64, 8192, 48, 8, 2, 1, 512, 1536, 4, 138, 0},
                                {"76.1B", 80, 10240, 60, 8, 4, 3, 1024, 1792, 2, 140, 0},
                                {"145.6B", 96, 12288, 80, 8, 8, 2, 1536, 2304, 2, 148, 0},
                                {"310.1B", 128, 16384, 96, 8, 16, 2, 1920, 2160, 1, 155, 0},
                                {"529.6B", 128, 20480, 105, 8, 35, 3, 2520, 2520, 1, 163, 0},
                                {"1008B", 160, 25600, 128, 8, 64, 1, 3072, 3072, 1, 163, 0},
                                {"175B on 384", 96, 12288, 96, 8, 12, 1, 384, 1536, 1, 153, 0},
                                {"175B on 768", 96, 12288, 96, 8, 12, 1, 768, 1536, 1, 149, 0},
                                {"175B on 1536", 96, 12288, 96, 8, 12, 1, 1536, 1536, 1, 141, 0},
                                {"530B on 560", 128, 20480, 105, 8, 35, 1, 560, 2240, 1, 171, 0},
                                {"530B on 1120", 128, 20480, 105, 8, 35, 1, 1120, 2240, 1, 167, 0},
                                {"530B on 2240", 128, 20480, 105, 8, 35, 1, 2240, 2240, 1, 159, 0},
                                {"22B full", 64, 6144, 48, 8, 1, 1, 8, 4, 4, 0, 1.42},
                                {"22B selective", 64, 6144, 48, 8, 1, 1, 8, 4, 4, 0, 1.10, true},
                                {"175B full", 96, 12288, 96, 8, 8, 3, 64, 64, 1, 0, 18.13},
                                {"175B selective", 96, 12288, 96, 8, 8, 3, 64, 64, 1, 0, 13.75, true},
                                {"530B full", 128, 20480, 105, 8, 35, 3, 280, 280, 1, 0, 49.05},
                                {"530B selective", 128, 20480, 105, 8, 35, 3, 280, 280, 1, 0, 37.83, true},
                                {"1T full", 160, 25600, 128, 8, 64, 1, 512, 512, 1, 0, 94.42},
                                {"1T selective", 160, 25600, 128, 8, 64, 1, 512, 512, 1, 0, 71.49, true}};

double paper_operations(double batch, double layers, double h) {
  constexpr double s = 2048, vocabulary = 51200;
  return 96 * batch * s * layers * h * h * (1 + s / (6 * h) + vocabulary / (16 * layers * h));
}

ParallelPlan plan_of(const Published& row) {
  return {.tensor = row.tensor,
          .pipeline = row.pipeline,
          .data = row.devices / row.tensor / row.pipeline,
          .micro_batch = row.micro_batch,
          .schedule = row.chunks > 1 ? ScheduleKind::kInterleaved : ScheduleKind::kOneForwardOneBackward,
          .chunks = row.chunks,
          .sequence_parallel = row.selective,
          .recompute = row.selective ? Recomputation::kSelective : Recomputation::kFull};
}

// One set of constants for all of them.
TEST(StepModels, AreWithinTenPercentOf24PublishedRuns) {
  double sum = 0, worst = 0;
  for (const Published& row : kPublished) {
    const StepModel model(gpt(row.layers, row.hidden, row.heads), a100(row.devices), megatron_runtime(), row.batch);
    const StepTime time = model.exact(plan_of(row));
    const double measured =
        row.seconds > 0 ? row.seconds
                        : paper_operations(row.batch, row.layers, row.hidden) / (row.teraflops * 1e12 * row.devices);
    const double error = time.step() / measured - 1;
    EXPECT_LE(model.lower_bound(plan_of(row)), time.step() * (1 + 1e-9)) << row.name;
    sum += std::abs(error);
    worst = std::max(worst, std::abs(error));
    EXPECT_NEAR(model.estimate(plan_of(row)).step() / time.step(), 1, 1e-3) << row.name;
  }
  EXPECT_LE(sum / std::size(kPublished), 0.05);
  EXPECT_LE(worst, 0.10);
}

// Narayanan et al. 2021, table 2: TFLOP/s of a device with ZeRO-3, where larger clusters have smaller microbatches.
TEST(StepModels, SlowDownWithZero3AsPublished) {
  struct Row {
    int devices, micro_batch;
    double teraflops;
  };
  std::vector<double> predicted;
  const Row rows[] = {{384, 4, 144}, {768, 2, 88}, {1536, 1, 44}};
  for (const Row& row : rows) {
    const StepModel model(gpt(96, 12288, 96), a100(row.devices), deepspeed_runtime(), 1536);
    const double step = model
                            .exact({.data = row.devices,
                                    .micro_batch = row.micro_batch,
                                    .zero = ZeroStage::kWeights,
                                    .recompute = Recomputation::kFull})
                            .step();
    predicted.push_back(paper_operations(1536, 96, 12288) / step / row.devices / 1e12);
  }
  EXPECT_NEAR((predicted[0] / predicted[2]) / (144.0 / 44), 1, 0.2);
  EXPECT_GT(predicted[0], predicted[1]);
}

// The parts of a step are its whole, and no bound is above it, whatever the plan.
TEST(StepModels, PartsSumUpAndBoundsHold) {
  const StepModel megatron(gpt(24, 1024, 16), a100(16), megatron_runtime(), 64);
  const StepModel tutti(gpt(24, 1024, 16), a100(16), tutti_runtime(Precision::kBF16), 64);
  for (const char* const text :
       {"dp=16,mbs=4", "tp=2,dp=8,mbs=2", "tp=4,sp,pp=2,dp=2,mbs=2", "pp=4,dp=4,mbs=1",
        "pp=4,dp=4,mbs=1,recompute=full", "pp=4,schedule=interleaved,chunks=3,dp=4,mbs=2", "pp=16,mbs=4",
        "pp=8,schedule=zb-h1,dp=2,mbs=1", "pp=4,schedule=zb-v,chunks=2,dp=4,mbs=1", "pp=5,dp=2,mbs=1,recompute=2",
        "pp=4,schedule=fill-drain,dp=4,mbs=4", "dp=16,mbs=4,zero=3", "cp=4,dp=4,mbs=4", "dp=16,mbs=2,zero=1,overlap"})
    for (const StepModel* const model : {&megatron, &tutti}) {
      const ParallelPlan plan = parse_parallel_plan(text).or_throw();
      const StepTime time = model->exact(plan);
      EXPECT_LE(model->lower_bound(plan), time.step() * (1 + 1e-9)) << text;
      EXPECT_NEAR(model->estimate(plan).step() / time.step(), 1, 0.1) << text;
      for (const double part : {time.compute, time.recompute, time.tensor, time.context, time.messages, time.bubble,
                                time.averages, time.optimizer})
        EXPECT_GE(part, 0) << text;
    }
}

// Milliseconds of pretrain_gpt's steps on both cores of a Xeon (Sapphire Rapids), whose products reach 150 GFLOP/s
// (bench/planner, 29 November 2026). Their order is that of the measured ones.
TEST(StepsOnCores, AreWithinAFifthOfMeasuredOnes) {
  const Cluster xeon{.nodes = {{.devices = 2, .memory = 12e9, .cores = 2}},
                     .network = {.inside = {0, 13e9, 0.9e-6}, .cards = 1},
                     .device = {.peak = 167e9,
                                .share = 0.9,
                                .product_start = 3e-6,
                                .stream_bandwidth = 24e9,
                                .function = 0.78e-9,
                                .launch = 5e-6}};
  const TransformerConfig config = with_defaults({.layers = 4,
                                                  .hidden = 256,
                                                  .heads = 4,
                                                  .vocabulary = 2048,
                                                  .sequence_length = 256,
                                                  .attention_dropout = 0.1,
                                                  .hidden_dropout = 0.1});
  const StepModel model(config, xeon, tutti_runtime(Precision::kF32), 16);
  double before = 0;
  for (const auto& [text, milliseconds] : {std::pair("dp=2,mbs=4", 469.0),
                                           {"cp=2,mbs=16", 559},
                                           {"cp=2,mbs=2", 604},
                                           {"dp=2,mbs=2,recompute=full", 658},
                                           {"cp=2,mbs=16,recompute=full", 715}}) {
    const double seconds = model.exact(parse_parallel_plan(text).or_throw()).step();
    EXPECT_NEAR(seconds * 1e3 / milliseconds, 1, 0.2) << text;
    EXPECT_GT(seconds, before) << text;
    before = seconds;
  }
}

TEST(Messages, ShareTheCardsWithTheRanksThatCrossNodesToo) {
  const ClusterNetwork network{.inside = {0, 100e9, 0}, .between = {0, 10e9, 0}, .cards = 2, .start = 0};
  EXPECT_DOUBLE_EQ(message_time(network, 0, 1e9), 0.01);
  EXPECT_DOUBLE_EQ(message_time(network, 4, 1e9), 0.2);  // 4 ranks share two cards
  EXPECT_DOUBLE_EQ(message_time(network, 1, 1e9), 0.05);
}

// A sender that each message keeps busy for a second delays the next message; latency delays none. At the end two more
// messages sum the gradients of the tied embedding.
TEST(Messages, OfAPipelineQueueForWhatKeepsTheirSenderBusy) {
  const auto step = [](ClusterLink link) {
    Cluster cluster = a100(2);
    cluster.nodes[0].devices = 2;
    cluster.network.inside = link;
    const StepModel model(gpt(4, 1024, 16), cluster, tutti_runtime(Precision::kF32), 16);
    return model.exact_step({.pipeline = 2, .schedule = ScheduleKind::kFillDrain});
  };
  EXPECT_NEAR(step({.latency = 1, .bandwidth = 1e12}), 2 + 2, 1);
  EXPECT_NEAR(step({.latency = 0, .bandwidth = 1e12, .overhead = 1}), 2 * 16 + 2, 1);
}

TEST(ProductTimes, ComeFromMeasuredProductsIfThereAreAny) {
  DeviceRates device{.peak = 1e12, .share = 0.5, .product_start = 1e-6, .stream_bandwidth = 1e11};
  EXPECT_DOUBLE_EQ(product_time(device, ProductKind::kForward, 1000, 1000, 1000, 1, 4, 1), 2e9 / 0.5e12 + 1e-6);
  EXPECT_DOUBLE_EQ(product_time(device, ProductKind::kForward, 1, 1000, 1000, 1, 4, 1), 4.008e6 / 1e11 + 1e-6);
  device.products = {{ProductKind::kForward, 1000, 1000, 1000, 1, 0.01},
                     {ProductKind::kForward, 1000, 1000, 1000, 2, 0.02},
                     {ProductKind::kForward, 100, 1000, 1000, 1, 0.002}};
  const auto seconds = [&](double m, int busy) {
    return product_time(device, ProductKind::kForward, m, 1000, 1000, 1, 4, busy);
  };
  EXPECT_DOUBLE_EQ(seconds(1000, 1), 0.01);
  EXPECT_DOUBLE_EQ(seconds(1000, 2), 0.02);
  const double between = seconds(316, 1);  // a rate between 1e11 and 2e11
  EXPECT_GT(between, 316 * 2e6 / 2e11);
  EXPECT_LT(between, 316 * 2e6 / 1e11);
}

}  // namespace
}  // namespace tutti::planning
