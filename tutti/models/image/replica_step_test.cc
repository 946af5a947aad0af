// The end of a step, whole and sharded: what is left out, and what is clipped.
#include "tutti/models/image/replica_step.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <cmath>
#include <limits>

#include "tests/harness/ranks.h"
#include "tutti/base/error.h"
#include "tutti/tensor/named_tensor.h"

namespace tutti {
namespace {

using test::check;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const UpdateRule kPlainSgd = SgdOptions{.lr = 0.1};

class ReplicaStepTest : public ::testing::TestWithParam<int> {
 protected:
  // On each of two ranks.
  template <class Body>
  void run(const ReplicaStepOptions& options, const Body& body, FiniteCheck check = FiniteCheck::kOff) {
    if (options.scales_loss) check = FiniteCheck::kReport;
    const std::vector<std::shared_ptr<ImageModel>> models = {make_image_model("cnn", 1), make_image_model("cnn", 1)};
    const auto outcomes = test::run_threads(2, [&](Group& world) {
      DataParallel<ImageModel> ddp(models[std::size_t(world.rank())], world, {.finite_check = check});
      ReplicaStep weights(ddp, options);
      // Of a loss that is this factor times the usual one on rank 1.
      const auto step = [&](float factor) {
        ddp.zero_grad();
        const auto loss = ddp.forward(at::ones({2, 1, 28, 28})).select(1, 3).mean();
        weights.scaled(loss * (world.rank() == 1 ? factor : 1.0f)).backward();
        weights.finish();
      };
      body(ddp, weights, step);
    });
    EXPECT_EQ(test::describe(outcomes), "");
  }
  static std::vector<at::Tensor> copies(DataParallel<ImageModel>& ddp) {
    std::vector<at::Tensor> made;
    for (const auto& parameter : ddp.module().parameters()) made.push_back(parameter.detach().clone());
    return made;
  }
  static double moved(DataParallel<ImageModel>& ddp, const std::vector<at::Tensor>& from) {
    double squares = 0;
    const auto now = ddp.module().parameters();
    for (std::size_t i = 0; i < from.size(); ++i)
      squares += (now[i].detach() - from[i]).to(at::kDouble).pow(2).sum().item<double>();
    return std::sqrt(squares);
  }
};

INSTANTIATE_TEST_SUITE_P(, ReplicaStepTest, ::testing::Values(0, 1, 2),
                         [](const auto& info) { return info.param ? "stage" + std::to_string(info.param) : "whole"; });

TEST_P(ReplicaStepTest, AnInfinitySkipsTheStepOnAllRanksAndLowersTheScale) {
  for (const double clip : {0.0, 0.5}) {
    run({.rule = kPlainSgd, .sharded_stage = GetParam(), .clip_grad_norm = clip, .scales_loss = true},
        [](auto& ddp, auto& weights, const auto& step) {
          step(1);
          const auto before = copies(ddp);
          const auto scale = [&] { return weights.scaled(at::ones({})).template item<double>(); };
          const double before_overflow = scale();
          step(kInfinity);
          check(moved(ddp, before) == 0, "a step with an infinity was made");
          check(weights.skipped() == 1 && scale() == before_overflow / 2, "skipped steps ", weights.skipped());
          step(1);
          check(moved(ddp, before) > 0 && weights.skipped() == 1, "the step after it");
        });
  }
}

TEST_P(ReplicaStepTest, AnInfinityThatNothingScalesIsAnErrorWhereTheNormIsKnown) {
  run({.rule = kPlainSgd, .sharded_stage = GetParam(), .clip_grad_norm = 1}, [](auto& ddp, auto&, const auto& step) {
    const auto before = copies(ddp);
    std::string said;
    try {
      step(kInfinity);
    } catch (const Exception& error) {
      said = error.what();
    }
    check(said.find("the gradient of ") != std::string::npos && said.find("a NaN or an infinity") != std::string::npos,
          said);
    check(moved(ddp, before) == 0, "a step with an infinity was made");
  });
}

TEST_P(ReplicaStepTest, WithAFiniteCheckANonFiniteGradientIsReportedWithItsRank) {
  for (const double clip : {0.0, 0.5}) {
    run(
        {.rule = kPlainSgd, .sharded_stage = GetParam(), .clip_grad_norm = clip},
        [](auto& ddp, auto&, const auto& step) {
          step(1);
          const auto before = copies(ddp);
          std::string said;
          try {
            step(kInfinity);
          } catch (const Exception& error) {
            said = error.what();
          }
          check(said.find("the gradient of conv1.weight has a NaN or an infinity on rank 1") != std::string::npos,
                said);
          check(moved(ddp, before) == 0, "a step with an infinity was made");
        },
        FiniteCheck::kReport);
  }
}

TEST_P(ReplicaStepTest, ByDefaultAnInfinityIsAnErrorWithItsRank) {
  for (const double clip : {0.0, 0.5}) {
    run(
        {.rule = kPlainSgd, .sharded_stage = GetParam(), .clip_grad_norm = clip},
        [&](auto& ddp, auto&, const auto& step) {
          step(1);
          const auto before = copies(ddp);
          std::string said;
          try {
            step(kInfinity);
          } catch (const Exception& error) {
            said = error.what();
          }
          check(said.find("the gradient of conv1.weight h") != std::string::npos, said);
          check(said.find("on rank 1") != std::string::npos, said);
          const bool one_pass = GetParam() == 1 && clip == 0;
          check(one_pass ? std::isfinite(moved(ddp, before)) : moved(ddp, before) == 0, "the weights");
        },
        FiniteCheck::kInReduction);
  }
}

// Without momentum a step is the rate times the gradient.
TEST_P(ReplicaStepTest, AGradientIsNeverStretchedToTheNormGiven) {
  const auto length = [&](double clip) {
    double found = 0;
    run({.rule = kPlainSgd, .sharded_stage = GetParam(), .clip_grad_norm = clip},
        [&](auto& ddp, auto&, const auto& step) {
          const auto before = copies(ddp);
          step(1);
          const double distance = moved(ddp, before);
          if (ddp.reducer().group().rank() == 0) found = distance;
        });
    return found;
  };
  const double free = length(0);
  EXPECT_GT(free, 0);
  EXPECT_NEAR(length(1e4) / free, 1, 1e-6);
  EXPECT_NEAR(length(free / 0.1 / 4) / free, 0.25, 1e-3);
}

}  // namespace
}  // namespace tutti
