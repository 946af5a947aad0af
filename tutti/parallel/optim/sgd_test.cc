#include "tutti/parallel/optim/sgd.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/optim/sgd.h>

#include "tutti/base/error.h"

namespace tutti {
namespace {

void compare(SgdOptions options, at::ScalarType type, double tolerance) {
  at::manual_seed(3);
  const auto start = at::randn({70, 33}, type);
  auto ours = start.clone().set_requires_grad(true), theirs = start.clone().set_requires_grad(true);
  Sgd sgd({ours}, options);
  torch::optim::SGD reference({theirs}, torch::optim::SGDOptions(options.lr)
                                            .momentum(options.momentum)
                                            .weight_decay(options.weight_decay)
                                            .nesterov(options.nesterov));
  for (int step = 0; step < 6; ++step) {
    const auto gradient = at::randn({70, 33}, type);
    ours.mutable_grad() = gradient.clone();
    theirs.mutable_grad() = gradient.clone();
    sgd.step();
    reference.step();
    EXPECT_LE((ours - theirs).abs().max().item<double>(), tolerance) << "step " << step;
  }
}

TEST(Sgd, EqualsLibTorchs) {
  for (double momentum : {0.0, 0.9}) {
    for (double decay : {0.0, 0.01}) {
      compare({.lr = 0.05, .momentum = momentum, .weight_decay = decay}, at::kDouble, 1e-15);
      compare({.lr = 0.05, .momentum = momentum, .weight_decay = decay}, at::kFloat, 1e-6);
    }
  }
  compare({.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true}, at::kDouble, 1e-15);
}

TEST(Sgd, LeavesParametersWithoutAGradientAlone) {
  auto used = at::ones({2}).set_requires_grad(true), unused = at::ones({2}).set_requires_grad(true);
  Sgd sgd({used, unused}, {.lr = 0.5});
  used.mutable_grad() = at::ones({2});
  sgd.step();
  EXPECT_EQ(used[0].item<float>(), 0.5f);
  EXPECT_EQ(unused[0].item<float>(), 1.0f);
  sgd.zero_grad();
  EXPECT_FALSE(used.grad().defined());
}

TEST(Sgd, AParameterThatIsListedTwiceTakesOneStep) {
  auto tied = at::ones({2}).set_requires_grad(true), other = at::ones({2}).set_requires_grad(true);
  Sgd sgd({tied, other, tied}, {.lr = 0.5, .momentum = 0.9});
  for (auto* parameter : {&tied, &other}) parameter->mutable_grad() = at::ones({2});
  sgd.step();
  EXPECT_EQ(tied[0].item<float>(), 0.5f);
  EXPECT_EQ(other[0].item<float>(), 0.5f);
}

TEST(Sgd, AutogradSeesThatWeightsHaveChanged) {
  auto w = at::ones({2}).set_requires_grad(true);
  Sgd sgd({w}, {.lr = 0.5});
  const auto loss = (w * w).sum();
  w.mutable_grad() = at::ones({2});
  sgd.step();
  EXPECT_THROW(loss.backward(), std::exception);
}

TEST(Sgd, RefusesOtherTypes) {
  try {
    Sgd({at::ones({2}, at::kHalf)}, {});
    FAIL();
  } catch (const Exception& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("a parameter is f16[2]; expected f32 or f64"));
  }
}

}  // namespace
}  // namespace tutti
