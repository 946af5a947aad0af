#include "tutti/training/parameter_schedule.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

#include "tutti/base/error.h"

namespace tutti {
namespace {

LearningRateOptions options(DecayStyle style) {
  return {.most = 1e-2,
          .least = 1e-3,
          .at_start = 0,
          .warm_up_samples = 100,
          .decay_samples = 1100,
          .style = style,
          .anneal_samples = 400};
}

// The points of Megatron-LM's test_optimizer_param_scheduler.py: in the warm-up, at its end, half way, at the end,
// after.
TEST(LearningRate, IsMegatrons) {
  using enum DecayStyle;
  for (const DecayStyle style : {kConstant, kLinear, kCosine, kInverseSquareRoot, kWarmUpStableDecay}) {
    const LearningRate rate(options(style));
    EXPECT_DOUBLE_EQ(rate.at(0), 0);
    EXPECT_DOUBLE_EQ(rate.at(50), 5e-3);
    EXPECT_DOUBLE_EQ(rate.at(100), 1e-2);
    EXPECT_DOUBLE_EQ(rate.at(2000), style == kConstant ? 1e-2 : 1e-3);
  }
  EXPECT_DOUBLE_EQ(LearningRate(options(kConstant)).at(600), 1e-2);
  EXPECT_DOUBLE_EQ(LearningRate(options(kLinear)).at(600), 5.5e-3);
  EXPECT_DOUBLE_EQ(LearningRate(options(kLinear)).at(1100), 1e-3);
  EXPECT_DOUBLE_EQ(LearningRate(options(kCosine)).at(600), 5.5e-3);
  EXPECT_DOUBLE_EQ(LearningRate(options(kCosine)).at(350), 1e-3 + 9e-3 * 0.5 * (1 + std::cos(std::numbers::pi / 4)));
  EXPECT_DOUBLE_EQ(LearningRate(options(kInverseSquareRoot)).at(400), 5e-3);
  EXPECT_DOUBLE_EQ(LearningRate(options(kWarmUpStableDecay)).at(700), 1e-2);  // the decay begins here
}

TEST(LearningRate, AnnealsAtTheEnd) {
  const auto half_way = [](AnnealStyle style) {
    LearningRateOptions o = options(DecayStyle::kWarmUpStableDecay);
    o.anneal = style;
    return (LearningRate(o).at(900) - o.least) / (o.most - o.least);
  };
  EXPECT_DOUBLE_EQ(half_way(AnnealStyle::kLinear), 0.5);
  EXPECT_DOUBLE_EQ(half_way(AnnealStyle::kCosine), 0.5);
  EXPECT_DOUBLE_EQ(half_way(AnnealStyle::kExponential), 2 * std::sqrt(0.5) - 1);
  EXPECT_DOUBLE_EQ(half_way(AnnealStyle::kMinusSquareRoot), 1 - std::sqrt(0.5));
}

TEST(LearningRate, WarmsUpFromARate) {
  LearningRateOptions o = options(DecayStyle::kLinear);
  o.at_start = 2e-3;
  EXPECT_DOUBLE_EQ(LearningRate(o).at(0), 2e-3);
  EXPECT_DOUBLE_EQ(LearningRate(o).at(50), 6e-3);
  o.warm_up_samples = 0;
  EXPECT_DOUBLE_EQ(LearningRate(o).at(0), 1e-2);
}

TEST(WeightDecay, Grows) {
  const WeightDecay linear({0.1, 0.3, 100, IncreaseStyle::kLinear}), cosine({0.1, 0.3, 100, IncreaseStyle::kCosine});
  EXPECT_DOUBLE_EQ(linear.at(0), 0.1);
  EXPECT_DOUBLE_EQ(linear.at(50), 0.2);
  EXPECT_DOUBLE_EQ(linear.at(1000), 0.3);
  EXPECT_DOUBLE_EQ(cosine.at(0), 0.1);
  EXPECT_DOUBLE_EQ(cosine.at(25), 0.1 + 0.2 * 0.5 * (std::cos(0.75 * std::numbers::pi) + 1));
  EXPECT_DOUBLE_EQ(cosine.at(100), 0.3);
  EXPECT_DOUBLE_EQ(WeightDecay({0.1, 0.1, 1, IncreaseStyle::kConstant}).at(7), 0.1);
}

TEST(Schedules, NamesAreMegatrons) {
  EXPECT_EQ(decay_style("inverse-square-root"), DecayStyle::kInverseSquareRoot);
  EXPECT_EQ(decay_style("WSD"), DecayStyle::kWarmUpStableDecay);
  EXPECT_EQ(anneal_style("minus_sqrt"), AnnealStyle::kMinusSquareRoot);
  EXPECT_EQ(increase_style("cosine"), IncreaseStyle::kCosine);
  EXPECT_FALSE(decay_style("lineal"));
}

TEST(Schedules, MistakesAreRefused) {
  LearningRateOptions o = options(DecayStyle::kLinear);
  o.warm_up_samples = o.decay_samples;
  EXPECT_THROW(LearningRate{o}, Exception);
  o = options(DecayStyle::kLinear);
  o.least = 1;
  EXPECT_THROW(LearningRate{o}, Exception);
  o = options(DecayStyle::kWarmUpStableDecay);
  o.anneal_samples = 0;
  EXPECT_THROW(LearningRate{o}, Exception);
  EXPECT_THROW(WeightDecay({0.1, 0.2, 10, IncreaseStyle::kConstant}), Exception);
  EXPECT_THROW(WeightDecay({0.3, 0.2, 10, IncreaseStyle::kLinear}), Exception);
}

}  // namespace
}  // namespace tutti
