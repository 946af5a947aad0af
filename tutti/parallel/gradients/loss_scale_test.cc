// The scale of the loss, against what Megatron-LM's DynamicGradScaler does, step by step. LossScaler's tests compare it
// with PyTorch's GradScaler.
#include "tutti/parallel/gradients/loss_scale.h"

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

TEST(LossScale, IsHalvedFromTheSecondInfinityOnUntilItGrows) {
  LossScale scale({.initial = 64, .least = 4, .window = 3, .hysteresis = 2});
  EXPECT_EQ(scales(scale, "i.i..."), (std::vector<double>{64, 64, 32, 32, 32, 64}));
  EXPECT_EQ(scales(scale, "ii"), (std::vector<double>{64, 32})) << "the first one after growth is free again";
  EXPECT_EQ(scales(scale, "i.i"), (std::vector<double>{16, 16, 8})) << "and no other before it grows";
  EXPECT_TRUE(scale.may_skip_step());
  EXPECT_EQ(scales(scale, "iii"), (std::vector<double>{4, 4, 4})) << "never below the least";
  EXPECT_FALSE(scale.may_skip_step()) << "no smaller one is allowed";
}

TEST(LossScale, ResumesFromItsState) {
  const LossScaleOptions options{.initial = 64, .window = 3, .hysteresis = 2};
  LossScale whole(options), first(options), second(options);
  (void)scales(whole, "i.i.");
  (void)scales(first, "i.i.");
  second.load(first.state());
  EXPECT_EQ(scales(second, "..i.ii"), scales(whole, "..i.ii"));
}

TEST(LossScale, AFixedOneStays) {
  LossScale scale({.initial = 8, .is_fixed = true});
  EXPECT_EQ(scales(scale, "i...i"), std::vector<double>(5, 8.0));
  EXPECT_FALSE(scale.may_skip_step());
  scale.load({.scale = 2});
  EXPECT_EQ(scale.scale(), 8);
}

TEST(LossScale, NeverGrowsBeyondF32) {
  LossScale scale({.initial = 0x1p127, .window = 1});
  EXPECT_EQ(scales(scale, ".."), (std::vector<double>{0x1p127, 0x1p127}));
}

}  // namespace
}  // namespace tutti
