// The loss scaler, against what PyTorch's GradScaler does, step by step.
#include "tutti/parallel/data_parallel/precision/loss_scaler.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <limits>

#include "tutti/parallel/data_parallel/hooks/compression.h"
#include "tutti/parallel/data_parallel/test_models.h"
#include "tutti/parallel/optim/optimizer.h"

namespace tutti {
namespace {

using test::Branches;
using test::check;
using test::check_says;
using test::error_of;
using test::kPlain;
using test::make_models;

using Body = std::function<void(Group&, std::shared_ptr<Branches>)>;
void run(int ranks, const Body& body) {
  auto models = make_models<Branches>(ranks);
  const auto outcomes = test::run_threads(ranks, [&](Group& world) { body(world, models[std::size_t(world.rank())]); });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(LossScaler, GradientsComeOutUnscaledAndTheScaleGrowsAndFalls) {
  for (const bool views : {false, true}) {
    run(2, [&](Group& world, std::shared_ptr<Branches> model) {
      auto options = kPlain;
      if (!views) options.hook = f16_compression();
      options.gradient_as_bucket_view = views;
      options.finite_check = FiniteCheck::kReport;
      DataParallel ddp(model, world, options);
      LossScaler scaler(ddp, {.initial_scale = 1024, .growth_interval = 2});
      Sgd optimizer(model->parameters(), {.lr = 1});
      const auto step = [&](float factor) {
        ddp.zero_grad();
        scaler.scale(ddp.forward(at::full({1, 3}, factor * float(world.rank() + 1))).sum()).backward();
        ddp.finish();
        const bool stepped = scaler.step(optimizer);
        scaler.update();
        return stepped;
      };
      const float tiny = 0x1p-26f;  // f16 has nothing below 2^-24
      check(step(tiny) && scaler.scale() == 1024, "first");
      check(at::allclose(model->left->weight.grad(), at::full({2, 3}, 1.5f * tiny), 1e-3, 0), "unscaled");
      check(step(tiny) && scaler.scale() == 2048, "grown after two");
      const auto before = model->left->weight.detach().clone();
      const float huge = world.rank() == 1 ? std::numeric_limits<float>::infinity() : 1;
      check(!step(huge) && scaler.scale() == 1024, "fallen");
      check(at::equal(model->left->weight, before), "stepped with an infinity");
      check(step(1) && scaler.scale() == 1024 && scaler.state().good_steps == 1, "counts anew");
      check(step(1) && scaler.scale() == 2048, "grown again");
      scaler.load({.scale = 4, .good_steps = 1});
      check(step(1) && scaler.scale() == 8, "resumed");
    });
  }
}

// torch.cuda.amp.GradScaler's rule (_amp_update_scale_), step by step.
TEST(LossScaler, NeverGrowsBeyondF32) {
  run(1, [](Group& world, std::shared_ptr<Branches> model) {
    auto options = kPlain;
    options.finite_check = FiniteCheck::kReport;
    DataParallel ddp(model, world, options);
    LossScaler scaler(ddp, {.initial_scale = 0x1p127, .growth_interval = 1});
    ddp.forward(at::zeros({1, 3})).sum().mul(0).backward();
    ddp.finish();
    scaler.update();
    check(scaler.scale() == 0x1p127, "grew");
  });
}

// On both ranks alike, though the NaN is of one.
TEST(LossScaler, SaysSoWhereNoScaleHelps) {
  run(2, [](Group& world, std::shared_ptr<Branches> model) {
    auto options = kPlain;
    options.finite_check = FiniteCheck::kReport;
    DataParallel ddp(model, world, options);
    LossScaler scaler(ddp, {.initial_scale = 1, .backoff_factor = 0x1p-100});
    const auto step = [&] {
      ddp.zero_grad();
      const float x = world.rank() == 1 ? std::numeric_limits<float>::quiet_NaN() : 1;
      scaler.scale(ddp.forward(at::full({1, 3}, x)).sum()).backward();
      ddp.finish();
      return error_of([&] { scaler.update(); });
    };
    check(step() == "no error" && scaler.scale() == 0x1p-100, "fell");
    const auto told = step();
    check_says(told, "LossScaler: the scale has fallen to 7.88");
    check_says(told, ", and a gradient is still not finite: that of ");
    check_says(told, "(hint: no scale helps where the loss or a weight is a NaN: lower the learning rate");
    check(scaler.scale() == 0x1p-100, "kept");
  });
}

TEST(LossScaler, RefusesWhatCannotBeRight) {
  run(1, [](Group& world, std::shared_ptr<Branches> model) {
    DataParallel unchecked(model, world, kPlain);
    check_says(error_of([&] { LossScaler scaler(unchecked); }), "set DataParallelOptions::finite_check to");
    auto options = kPlain;
    options.finite_check = FiniteCheck::kReport;
    DataParallel ddp(model, world, options);
    const auto says = [&](LossScalerOptions given, const char* words) {
      check_says(error_of([&] { LossScaler scaler(ddp, given); }), words);
    };
    says({.initial_scale = 0}, "initial_scale is 0.000000; expected a positive number within f32");
    for (const double scale : {1e-50, 0x1p-149, 1e39})  // 0 in f32, its inverse infinite there, itself infinite
      says({.initial_scale = scale}, "expected a positive number within f32");
    says({.growth_factor = 1}, "growth_factor is 1.000000; expected more than 1");
    says({.backoff_factor = 1}, "backoff_factor is 1.000000; expected a number between 0 and 1");
    says({.growth_interval = 0}, "growth_interval is 0; expected at least one step");
  });
}

}  // namespace
}  // namespace tutti
