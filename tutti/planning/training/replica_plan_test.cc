#include "tutti/planning/training/replica_plan.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tutti/planning/training/cluster_presets.h"

namespace tutti {
namespace {

using testing::HasSubstr;

const ReplicaModel kMlp = replica_model("mlp").or_throw();

PlanOptions options_with(const std::vector<std::string>& fix) {
  return {.runtime = replica_runtime(2), .rules = {.fix = fix}, .best = 1000};
}

TEST(ReplicaModel, HasTheParametersOfTrainImage) {
  EXPECT_EQ(kMlp.parameters(), 784 * 4096 + 4096 + 4096 * 4096 + 4096 + 4096 * 10 + 10);
  EXPECT_EQ(replica_model("cnn").or_throw().parameters(), 1199882);
  EXPECT_EQ(replica_model("mlp:784-4096-4096-10").or_throw().parameters(), kMlp.parameters());
}

TEST(ReplicaModel, RejectsWhatIsNoModel) {
  for (const auto& [name, sentence] : {std::pair("mpl", "there is no model \"mpl\""),
                                       {"mlp:784", "has one size"},
                                       {"mlp:784-0", "has a size '0', expected 1 to "},
                                       {"mlp:", "has a size ''"}}) {
    const auto model = replica_model(name);
    ASSERT_FALSE(model.ok()) << name;
    EXPECT_THAT(model.error().detail, HasSubstr(sentence));
  }
}

TEST(ReplicaPlan, IsTheFastestOfAllAndUsesAllDevices) {
  const Cluster cluster = cluster_preset("cpu", 2).or_throw();
  const TrainingPlans plans = plan_replicas(kMlp, cluster, 96, options_with({})).or_throw();
  // Without sharding and with stages 1 and 2, of which one averages beside backward, and passes of 1, 2, 3 and 6.
  EXPECT_EQ(plans.fitting, 16);
  ASSERT_EQ(plans.best.size(), 16u);
  for (const RankedPlan& plan : plans.best) {
    EXPECT_EQ(plan.plan.data, 16);
    EXPECT_GE(plan.time.step(), plans.best[0].time.step());
    const RankedPlan alone = evaluate(kMlp, cluster, 96, options_with({}).runtime, plan.plan).or_throw();
    EXPECT_EQ(alone.time.step(), plan.time.step());
    EXPECT_EQ(alone.memory.total(), plan.memory.total());
    EXPECT_EQ(planning::refusal_of_replicas(plan.plan), "");
  }
}

TEST(ReplicaPlan, KeepsWhatIsGiven) {
  const Cluster cluster = cluster_preset("cpu", 1).or_throw();
  for (const RankedPlan& plan : plan_replicas(kMlp, cluster, 64, options_with({"zero=1", "mbs=2"})).or_throw().best)
    EXPECT_EQ(to_string(plan.plan), "dp=8,mbs=2,zero=1");
  const auto refused = plan_replicas(kMlp, cluster, 64, options_with({"tp=2"}));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().detail, HasSubstr("every rank has the whole model, so a plan has no tp"));
  EXPECT_THAT(plan_replicas(kMlp, cluster, 12, options_with({})).error().hint, HasSubstr("a batch of 8 or 16"));
}

TEST(ReplicaPlan, TakesLessMemoryWhereLittleIsThere) {
  const Cluster cluster = cluster_preset("cpu", 1).or_throw();
  PlanOptions options = options_with({});
  const TrainingPlans all = plan_replicas(kMlp, cluster, 1024, options).or_throw();
  double least = 1e18;
  for (const RankedPlan& plan : all.best) least = std::min(least, plan.memory.total());
  options.memory = least;
  const TrainingPlans few = plan_replicas(kMlp, cluster, 1024, options).or_throw();
  ASSERT_FALSE(few.best.empty());
  EXPECT_EQ(few.best[0].memory.total(), least);
  EXPECT_NE(few.best[0].plan.zero, ZeroStage::kNone);
  options.memory = least / 2;
  const TrainingPlans none = plan_replicas(kMlp, cluster, 1024, options).or_throw();
  EXPECT_TRUE(none.best.empty());
  EXPECT_FALSE(none.families.empty());
}

// The cards of the smaller node carry as much as those of the larger one.
TEST(ReplicaPlan, TakesNodesThatDiffer) {
  Cluster cluster = cluster_preset("cpu", 1).or_throw();
  cluster.nodes.push_back(cluster.nodes[0]);
  cluster.nodes[1].devices = 4;
  const TrainingPlans plans = plan_replicas(kMlp, cluster, 96, options_with({"zero=0", "mbs=8"})).or_throw();
  ASSERT_FALSE(plans.best.empty());
  EXPECT_EQ(plans.best[0].plan.data, 12);
  EXPECT_GT(plans.best[0].time.averages, 4 * kMlp.parameters() / cluster.network.between.bandwidth);
}

}  // namespace
}  // namespace tutti
