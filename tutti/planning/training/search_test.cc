#include "tutti/planning/training/search.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "tutti/planning/training/cluster_presets.h"

namespace tutti {
namespace {

constexpr double kGibibyte = 1024.0 * 1024 * 1024;

Cluster small_cluster(int nodes, int devices, double memory) {
  return {.name = "small",
          .nodes = {{.count = nodes, .devices = devices, .memory = memory}},
          .network = {.inside = {2e-6, 50e9, 1e-6}, .between = {10e-6, 5e9, 1e-6}, .cards = 1, .start = 10e-6},
          .device = {.peak = 20e12, .share = 0.6, .product_start = 10e-6, .stream_bandwidth = 0.5e12, .launch = 5e-6}};
}

// All plans by nested loops, those of even stages and those of the balanced ends over every field, each timed on the
// simulated clock: slow and simple.
std::vector<std::tuple<double, int, ParallelPlan>> brute_force(const TransformerConfig& config, const Cluster& cluster,
                                                               int batch, const TrainingRuntime& runtime,
                                                               double limit) {
  const planning::StepModel model(config, cluster, runtime, batch);
  const int n = cluster.devices();
  std::vector<std::tuple<double, int, ParallelPlan>> found;
  ParallelPlan p;
  for (p.tensor = 1; p.tensor <= n; ++p.tensor)
    for (p.context = 1; p.context <= n; ++p.context)
      for (p.pipeline = 1; p.pipeline <= n; ++p.pipeline) {
        if (n % (p.tensor * p.context * p.pipeline) != 0) continue;
        p.data = n / (p.tensor * p.context * p.pipeline);
        for (p.micro_batch = 1; p.micro_batch <= batch; ++p.micro_batch) {
          if (batch % (p.data * p.micro_batch) != 0) continue;
          const int microbatches = p.microbatches(batch);
          for (const bool sequence : {false, true})
            for (const ScheduleKind kind : kScheduleKinds)
              for (p.chunks = 1; p.chunks <= 8; ++p.chunks) {
                const bool interleaves = kind == ScheduleKind::kInterleaved;
                if (interleaves ? p.chunks < 2 : p.chunks != (kind == ScheduleKind::kZeroBubbleV ? 2 : 1)) continue;
                if (p.pipeline == 1 && kind != ScheduleKind::kOneForwardOneBackward) continue;
                if (interleaves && runtime.interleaves_evenly && microbatches % p.pipeline != 0) continue;
                p.sequence_parallel = sequence;
                p.schedule = kind;
                if (!check(config, {p.tensor, p.pipeline, p.chunks, p.context, p.sequence_parallel}).ok()) continue;
                for (const ZeroStage zero :
                     {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients, ZeroStage::kWeights})
                  for (const bool overlap : {false, true})
                    for (const Recomputation recompute :
                         {Recomputation::kNone, Recomputation::kSelective, Recomputation::kFull})
                      for (p.recomputed_layers = 0; p.recomputed_layers < config.layers; ++p.recomputed_layers) {
                        p.zero = zero;
                        p.overlap_gradients = overlap;
                        p.recompute = recompute;
                        if (p.recomputed_layers > 0 && recompute != Recomputation::kFull) break;
                        if (p.replicas() == 1 && (zero != ZeroStage::kNone || overlap)) continue;
                        if (!runtime.refusal(p).empty()) continue;
                        std::vector<EndLayers> ends{{}};
                        if (runtime.gives_end_layers) {
                          ParallelPlan whole = p;
                          whole.recomputed_layers = 0;
                          ends.push_back(model.balanced_ends(whole));
                        }
                        for (const EndLayers& taken : ends) {
                          ParallelPlan plan = p;
                          plan.ends = taken;
                          double most = 0;
                          for (int rank = 0; rank < p.pipeline; ++rank)
                            most = std::max(
                                most, planning::memory_of_rank(config, plan, runtime, microbatches, rank).total());
                          if (most <= limit) found.emplace_back(model.exact_step(plan), axes_of(plan), plan);
                        }
                      }
              }
        }
      }
  return found;
}

TEST(PlanTraining, EqualsBruteForceOn500Cases) {
  std::mt19937 random(7);
  const auto one_of = [&](std::vector<int> values) { return values[random() % values.size()]; };
  int empty = 0, pipelines = 0, tensor = 0, uneven = 0;
  for (int i = 0; i < 500; ++i) {
    const int heads = one_of({2, 3, 4, 8});
    TransformerConfig config = with_defaults({.layers = one_of({1, 2, 3, 5, 8}),
                                              .hidden = heads * one_of({16, 64, 256}),
                                              .heads = heads,
                                              .vocabulary = one_of({256, 32000}),
                                              .sequence_length = one_of({64, 512})});
    const int devices = one_of({1, 2, 3, 4}), nodes = one_of({1, 2}), batch = one_of({1, 2, 4, 6, 8});
    const double memory = one_of({1, 2, 4, 40}) * 0.01 * kGibibyte * config.hidden / 256;
    const Cluster cluster = small_cluster(nodes, devices, memory);
    TrainingRuntime runtime = i % 3 == 0   ? megatron_runtime()
                              : i % 3 == 1 ? tutti_runtime(Precision::kBF16)
                                           : deepspeed_runtime();
    runtime.reserved = 0;
    const TrainingPlans plans = plan_training(config, cluster, batch, {.runtime = runtime}).or_throw();
    auto all = brute_force(config, cluster, batch, runtime, plans.limit);
    ASSERT_EQ(plans.best.empty(), all.empty()) << i;
    if (all.empty()) {
      ++empty;
      continue;
    }
    const auto best = *std::min_element(all.begin(), all.end());
    ASSERT_TRUE(plans.is_proven) << i;
    ASSERT_NEAR(plans.best[0].time.step(), std::get<0>(best), 1e-9 * std::get<0>(best))
        << i << ": " << to_string(plans.best[0].plan) << " and " << to_string(std::get<2>(best));
    ASSERT_EQ(to_string(plans.best[0].plan), to_string(std::get<2>(best))) << i;
    ASSERT_EQ(plans.best[0].plan.devices(), cluster.devices());
    uneven += !plans.best[0].plan.ends.is_even();
    pipelines += plans.best[0].plan.pipeline > 1;
    tensor += plans.best[0].plan.tensor > 1;
  }
  EXPECT_GT(empty, 5);
  EXPECT_GT(pipelines, 20);
  EXPECT_GT(uneven, 2);
  EXPECT_GT(tensor, 20);
}

TEST(PlanTraining, UsesAllDevicesAndGivesTheSameTwice) {
  const TransformerConfig config =
      with_defaults({.layers = 96, .hidden = 12288, .heads = 96, .vocabulary = 51200, .sequence_length = 2048});
  Cluster cluster = small_cluster(128, 8, 80 * kGibibyte);
  cluster.device.peak = 312e12;
  const PlanOptions options{.runtime = megatron_runtime()};
  const TrainingPlans one = plan_training(config, cluster, 1536, options).or_throw();
  const TrainingPlans other = plan_training(config, cluster, 1536, options).or_throw();
  ASSERT_EQ(one.best.size(), 10u);
  for (std::size_t i = 0; i < one.best.size(); ++i) {
    EXPECT_EQ(one.best[i].plan, other.best[i].plan);
    EXPECT_EQ(one.best[i].time.step(), other.best[i].time.step());
    EXPECT_EQ(one.best[i].plan.devices(), 1024);
    EXPECT_LE(one.best[i].memory.total(), one.limit);
    EXPECT_GE(one.best[i].time.step(), one.best[0].time.step());
  }
  for (std::size_t i = 1; i < one.front.size(); ++i) {
    EXPECT_LT(one.front[i].memory.total(), one.front[i - 1].memory.total());
    EXPECT_GE(one.front[i].time.step(), one.front[i - 1].time.step());
  }
}

TEST(PlanTraining, KeepsWhatIsFixedAndAllowed) {
  const TransformerConfig config =
      with_defaults({.layers = 8, .hidden = 1024, .heads = 16, .vocabulary = 32000, .sequence_length = 512});
  const Cluster cluster = small_cluster(2, 4, 16 * kGibibyte);
  PlanOptions options{.runtime = tutti_runtime(Precision::kF32)};
  options.rules.fix = {"tp=2", "mbs=2", "recompute=1"};
  for (const RankedPlan& found : plan_training(config, cluster, 32, options).or_throw().best) {
    EXPECT_EQ(found.plan.tensor, 2);
    EXPECT_EQ(found.plan.micro_batch, 2);
    EXPECT_EQ(found.plan.recomputed_layers, 1);
  }
  // A head of 32,000 words takes as long as two of these layers.
  options.rules = {.fix = {"pp=4", "first=even"}, .allow = {}};
  for (const RankedPlan& found : plan_training(config, cluster, 32, options).or_throw().best)
    EXPECT_TRUE(found.plan.ends.is_even());
  options.rules = {.fix = {"pp=4", "chunks=1", "last=1"}, .allow = {}};
  for (const RankedPlan& found : plan_training(config, cluster, 32, options).or_throw().best)
    EXPECT_EQ(found.plan.ends, (EndLayers{.first = {}, .last = 1}));
  options.rules = {.fix = {"pp=2", "last=8", "first=1"}, .allow = {}};
  EXPECT_TRUE(plan_training(config, cluster, 32, options).or_throw().best.empty());
  options.rules = {.fix = {}, .allow = {"pp", "dp"}};
  for (const RankedPlan& found : plan_training(config, cluster, 32, options).or_throw().best) {
    EXPECT_EQ(found.plan.tensor * found.plan.context, 1);
    EXPECT_EQ(found.plan.schedule, ScheduleKind::kOneForwardOneBackward);
    EXPECT_EQ(found.plan.zero, ZeroStage::kNone);
  }
  options.rules = {.fix = {"tp=2", "tp=4"}, .allow = {}};
  const auto twice = plan_training(config, cluster, 32, options);
  ASSERT_FALSE(twice.ok());
  EXPECT_EQ(to_string(twice.error()), "Usage: plan: tp is given twice in tp=2,tp=4");
  options.rules = {.fix = {}, .allow = {"tpp"}};
  const auto unknown = plan_training(config, cluster, 32, options);
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(to_string(unknown.error()), "Usage: plan: there is no axis 'tpp' (hint: did you mean tp?)");
}

// The DeepSpeed runs of arXiv:2104.04473, table 2: 530e9 parameters at 4 samples a device need 640 devices, not 560.
TEST(PlanTraining, ReportsWhatDoesNotFit) {
  const TransformerConfig config =
      with_defaults({.layers = 105, .hidden = 20480, .heads = 128, .vocabulary = 51200, .sequence_length = 2048});
  const auto needed = [&](int devices) {
    const Cluster cluster = small_cluster(devices / 8, 8, 80 * kGibibyte);
    const ParallelPlan plan{
        .data = devices, .micro_batch = 4, .zero = ZeroStage::kWeights, .recompute = Recomputation::kFull};
    return evaluate(config, cluster, devices * 4, deepspeed_runtime(), plan).or_throw().memory.total();
  };
  EXPECT_GT(needed(560), usable_memory(small_cluster(1, 8, 80 * kGibibyte)));
  EXPECT_LT(needed(640), needed(560));

  const Cluster tiny = small_cluster(1, 2, 0.5 * kGibibyte);
  const TrainingPlans plans = plan_training(config, tiny, 8, {.runtime = megatron_runtime()}).or_throw();
  EXPECT_TRUE(plans.best.empty());
  ASSERT_FALSE(plans.families.empty());
  EXPECT_FALSE(plans.families[0].fits);
  EXPECT_GT(plans.families[0].best.memory.total(), plans.limit);
}

// With one replica, one rank of each end has the embedding: its sum has the card of the node for itself.
TEST(PlanTraining, ATiedEmbeddingIsSummedByItsRanksAlone) {
  const TransformerConfig config =
      with_defaults({.layers = 24, .hidden = 1024, .heads = 16, .vocabulary = 52224, .sequence_length = 1024});
  const Cluster cluster = small_cluster(4, 4, 16 * kGibibyte);
  const double bytes = 2.0 * config.vocabulary * config.hidden, card = cluster.network.between.bandwidth;
  const auto averages = [&](const ParallelPlan& plan) {
    return evaluate(config, cluster, 32, megatron_runtime(), plan).or_throw().time.averages;
  };
  EXPECT_NEAR(averages({.pipeline = 16}), bytes / card, 0.05 * bytes / card);
  EXPECT_GT(averages({.pipeline = 4, .data = 4}), 4 * bytes / card);
}

TEST(PlanTraining, RejectsClustersWithoutFigures) {
  const TransformerConfig config =
      with_defaults({.layers = 2, .hidden = 64, .heads = 4, .vocabulary = 256, .sequence_length = 32});
  const auto error_of = [&](const Cluster& cluster, int batch = 8) {
    const auto plans = plan_training(config, cluster, batch, {.runtime = megatron_runtime()});
    return plans.ok() ? std::string() : plans.error().detail;
  };
  Cluster cluster = small_cluster(2, 4, kGibibyte);
  EXPECT_EQ(error_of(cluster), "");
  EXPECT_EQ(error_of(cluster, 0), "a global batch of 0 samples, expected 1 or more");
  cluster.network.between.bandwidth = 0;
  EXPECT_EQ(error_of(cluster), "cluster small has no bandwidth between nodes");
  cluster.network.inside.bandwidth = 0;
  EXPECT_EQ(error_of(cluster), "cluster small has no bandwidth inside a node");
  cluster.nodes[0].memory = 0;
  EXPECT_EQ(error_of(cluster), "cluster small does not say how much memory a device has");
  cluster.nodes.insert(cluster.nodes.begin(), {.count = 1, .devices = 0, .memory = kGibibyte});
  EXPECT_EQ(error_of(cluster), "cluster small has nodes without devices");
}

// The product of dp and mbs is more than an int holds.
TEST(PlanTraining, RejectsHugeMicrobatches) {
  const TransformerConfig config =
      with_defaults({.layers = 2, .hidden = 64, .heads = 4, .vocabulary = 256, .sequence_length = 32});
  const auto plan = evaluate(config, small_cluster(512, 8, kGibibyte), 4096, megatron_runtime(),
                             {.data = 4096, .micro_batch = 1 << 20});
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().hint, "a smaller mbs, or a batch of 4294967296");
}

// 8 + 4 devices: a plan whose tensor groups stay on their nodes is found, and it is no faster than on 12 of one node.
TEST(PlanTraining, TakesNodesOfDifferentSizes) {
  const TransformerConfig model =
      with_defaults({.layers = 12, .hidden = 2048, .heads = 16, .vocabulary = 32000, .sequence_length = 2048});
  Cluster unequal = cluster_preset("a100-sxm", 1).or_throw(), one = unequal;
  unequal.nodes.push_back(unequal.nodes[0]);
  unequal.nodes[1].devices = 4;
  one.nodes[0].devices = 12;
  const PlanOptions options{.runtime = tutti_runtime(Precision::kBF16)};
  const TrainingPlans plans = plan_training(model, unequal, 48, options).or_throw();
  ASSERT_FALSE(plans.best.empty());
  EXPECT_EQ(plans.best[0].plan.devices(), 12);
  EXPECT_EQ(4 % plans.best[0].plan.tensor, 0) << to_string(plans.best[0].plan);
  const TrainingPlans alike = plan_training(model, one, 48, options).or_throw();
  EXPECT_GE(plans.best[0].time.step(), alike.best[0].time.step());
}

// Two nodes, the second one half as fast. Replicas wait for it; a pipeline gives it fewer layers.
TEST(PlanTraining, TakesNodesOfDifferentSpeeds) {
  const TransformerConfig model =
      with_defaults({.layers = 12, .hidden = 2048, .heads = 16, .vocabulary = 1024, .sequence_length = 1024});
  const Cluster fast = small_cluster(2, 1, 40 * kGibibyte);
  Cluster slow = fast, mixed = fast;
  slow.nodes[0].speed = 0.5;
  mixed.nodes[0].count = 1;
  mixed.nodes.push_back(mixed.nodes[0]);
  mixed.nodes[1].speed = 0.5;
  const TrainingRuntime runtime = tutti_runtime(Precision::kF32);
  const auto compute = [&](const Cluster& cluster, const ParallelPlan& plan) {
    return evaluate(model, cluster, 32, runtime, plan).or_throw().time.compute;
  };
  const ParallelPlan replicas{.data = 2}, even{.pipeline = 2};
  EXPECT_NEAR(compute(slow, replicas), 2 * compute(fast, replicas), 1e-9);
  EXPECT_NEAR(compute(mixed, replicas), compute(slow, replicas), 1e-9);
  EXPECT_NEAR(compute(mixed, even), compute(slow, even), 1e-9);

  PlanOptions options{.runtime = runtime};
  options.rules.fix = {"pp=2", "mbs=1", "schedule=1f1b"};
  const RankedPlan best = plan_training(model, mixed, 32, options).or_throw().best.at(0);
  const int second = layers_of_stage(12, 2, best.plan.ends, 1);
  EXPECT_TRUE(second == 3 || second == 4) << to_string(best.plan);
  EXPECT_LT(best.time.step(), 0.75 * evaluate(model, mixed, 32, runtime, even).or_throw().time.step());
}

}  // namespace
}  // namespace tutti
