// The scale of the loss, against what Megatron-LM's DynamicGradScaler does, step by step.
#include "tutti/training/loss_scale.h"

#include <gmock/gmock.h>

#include <string>
#include <vector>

namespace tutti {
namespace {

// 'i' stands for a step with an infinity, '.' for one without: the scale after each.
std::vector<double> scales(LossScale& scale, const std::string& steps) {
  std::vector<double> found;
  for (const char step : steps) {
    scale.update(step == '.');
    found.push_back(scale.scale());
  }
  return found;
}

TEST(LossScale, BeginsAsMegatronDoes) {
  LossScale scale(LossScaleOptions{});
  EXPECT_EQ(scale.scale(), 4294967296.0);
  for (int i = 0; i < 999; ++i) scale.update(true);
  EXPECT_EQ(scale.scale(), 4294967296.0);
  scale.update(true);
  EXPECT_EQ(scale.scale(), 2 * 4294967296.0) << "after 1000 good steps";
}

TEST(LossScale, BearsAnInfinityThenHalvesAtEachUntilItHasGrown) {
  LossScale scale({.initial = 64, .least = 4, .window = 3, .hysteresis = 2});
  EXPECT_EQ(scales(scale, "i.i..."), (std::vector<double>{64, 64, 32, 32, 32, 64}));
  EXPECT_EQ(scales(scale, "ii"), (std::vector<double>{64, 32})) << "it bears one again, since it has grown";
  EXPECT_EQ(scales(scale, "i.i"), (std::vector<double>{16, 16, 8})) << "and none more before it grows";
  EXPECT_TRUE(scale.may_leave_out());
  EXPECT_EQ(scales(scale, "iii"), (std::vector<double>{4, 4, 4})) << "never below the least";
  EXPECT_FALSE(scale.may_leave_out()) << "a smaller one is not to be had";
}

TEST(LossScale, GoesOnWhereItStood) {
  const LossScaleOptions options{.initial = 64, .window = 3, .hysteresis = 2};
  LossScale whole(options), first(options), second(options);
  (void)scales(whole, "i.i.");
  (void)scales(first, "i.i.");
  second.load(first.state());
  EXPECT_EQ(scales(second, "..i.ii"), scales(whole, "..i.ii"));
}

TEST(LossScale, AFixedOneStays) {
  LossScale scale({.fixed = 8});
  EXPECT_EQ(scales(scale, "i...i"), std::vector<double>(5, 8.0));
  EXPECT_FALSE(scale.may_leave_out());
  scale.load({.scale = 2});
  EXPECT_EQ(scale.scale(), 8);
}

TEST(LossScale, NeverGrowsBeyondF32) {
  LossScale scale({.initial = 0x1p127, .window = 1});
  EXPECT_EQ(scales(scale, ".."), (std::vector<double>{0x1p127, 0x1p127}));
}

TEST(LossScale, RefusesWhatCannotBe) {
  const auto refusal = [](const LossScaleOptions& options) {
    const Status status = check(options);
    return status.ok() ? "accepted" : status.error().detail;
  };
  EXPECT_EQ(refusal({.fixed = -1}), "--loss-scale is -1; expected a positive number within f32");
  EXPECT_EQ(refusal({.initial = 0}), "--initial-loss-scale is 0; expected a positive number within f32");
  EXPECT_EQ(refusal({.initial = 2, .least = 4}), "--min-loss-scale 4 is more than --initial-loss-scale 2");
  EXPECT_EQ(refusal({.window = 0}), "--loss-scale-window is 0; expected at least one step");
  EXPECT_EQ(refusal({.hysteresis = 0}), "--hysteresis is 0; expected at least one step");
}

}  // namespace
}  // namespace tutti
