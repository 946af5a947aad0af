// PowerSGD and local SGD, against what their papers and PyTorch say they do. (Against PyTorch itself:
// tests/parity/torch_ddp_parity_test.cc.)
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "tests/harness/checkpoints.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/hooks/local_sgd.h"
#include "tutti/parallel/data_parallel/hooks/power_sgd.h"
#include "tutti/parallel/data_parallel/precision/loss_scaler.h"
#include "tutti/parallel/data_parallel/test_models.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

using test::Branches;
using test::check;
using test::check_says;
using test::error_of;
using test::kPlain;
using test::make_models;
using testing::HasSubstr;

using Body = std::function<void(Group&, std::shared_ptr<Branches>)>;
void run(int ranks, std::int64_t width, const Body& body) {
  auto models = make_models<Branches>(ranks, width);
  const auto outcomes = test::run_threads(ranks, [&](Group& world) { body(world, models[std::size_t(world.rank())]); });
  EXPECT_EQ(test::describe(outcomes), "");
}

DataParallelOptions hooked(std::shared_ptr<CommHook> hook, Overlap overlap = Overlap::kAuto) {
  auto options = kPlain;
  options.hook = std::move(hook);
  options.overlap = overlap;
  return options;
}

// The gradient of a linear layer for one sample is an outer product: rank 1, and so is a sum of multiples of it.
at::Tensor sample(int rank) { return (at::arange(50, at::kFloat) / 10 - 2).view({1, 50}) * float(rank + 1); }

TEST(PowerSgd, IsExactWhereTheAverageHasTheRankOfTheApproximation) {
  for (const auto overlap : {Overlap::kOn, Overlap::kOff}) {
    for (const bool warm : {false, true}) {
      run(3, 50, [&](Group& world, std::shared_ptr<Branches> model) {
        const auto hook = std::make_shared<PowerSgd>(
            PowerSgdOptions{.rank = 1, .start_step = 2, .warm_start = warm, .min_compression_rate = 1});
        DataParallel ddp(model, world, hooked(hook, overlap));
        for (int step = 0; step < 5; ++step) {
          ddp.zero_grad();
          ddp.forward(sample(world.rank())).sum().backward();
          ddp.finish();
          check(at::allclose(model->left->weight.grad(), sample(1).expand({2, 50}), 1e-4, 1e-4), "weight, step ", step);
          check(at::allclose(model->right->bias.grad(), at::ones({2})), "bias, step ", step);
          check((hook->elements().before == 0) == (step < 2), "compressed in step ", step);
        }
        check(hook->elements().before == 3 * 2 * (100 + 2) && hook->elements().after == 3 * 2 * (52 + 2), "elements");
      });
    }
  }
}

// What the approximation leaves out must come with later gradients: their sum tends to the sum of the true averages.
TEST(PowerSgd, ErrorFeedbackGivesLaterWhatWasLost) {
  for (const bool feedback : {false, true}) {
    run(2, 64, [&](Group& world, std::shared_ptr<Branches> model) {
      auto generator = at::detail::createCPUGenerator(std::uint64_t(7 + world.rank()));
      const auto x = at::randn({16, 64}, generator, at::kFloat), g = at::randn({16, 2}, generator, at::kFloat);
      const auto hook = std::make_shared<PowerSgd>(
          PowerSgdOptions{.rank = 1, .start_step = 2, .error_feedback = feedback, .min_compression_rate = 1});
      DataParallel ddp(model, world, hooked(hook));
      auto truth = g.t().matmul(x);
      all_reduce(world, truth, ReduceOp::kAvg);
      auto total = at::zeros_like(truth);
      constexpr int kSteps = 60;
      for (int step = 0; step < kSteps; ++step) {
        ddp.zero_grad();
        (ddp.forward(x) * g).sum().backward();
        ddp.finish();
        total += model->left->weight.grad();
      }
      const double off = ((total / kSteps - truth).norm() / truth.norm()).item<double>();
      check(feedback ? off < 0.05 : off > 0.2, "off by ", off, " with error feedback: ", int(feedback));
    });
  }
}

// The gradients themselves are whole numbers, which bf16 can hold.
TEST(PowerSgd, ComputesInF32UnderAutocast) {
  for (const auto overlap : {Overlap::kOn, Overlap::kOff}) {
    run(2, 50, [&](Group& world, std::shared_ptr<Branches> model) {
      DataParallel ddp(
          model, world,
          hooked(std::make_shared<PowerSgd>(PowerSgdOptions{.start_step = 2, .min_compression_rate = 1}), overlap));
      const auto x = (at::arange(50, at::kFloat) - 20).view({1, 50});
      for (int step = 0; step < 4; ++step) {
        ddp.zero_grad();
        const auto loss = ddp.forward(x * float(2 * world.rank() + 1)).sum();
        const Autocast precision(DType::kBF16);
        loss.backward();
        ddp.finish();
        check(at::allclose(model->left->weight.grad(), (x * 2).expand({2, 50}), 1e-4, 1e-4), "step ", step);
      }
    });
  }
}

// One matrix of [12, 40].
class OneMatrix : public torch::nn::Module {
 public:
  explicit OneMatrix(at::ScalarType type)
      : layer(register_module("layer", torch::nn::Linear(torch::nn::LinearOptions(40, 12).bias(false)))) {
    to(type);
  }
  at::Tensor forward(const at::Tensor& x) { return layer->forward(x); }
  torch::nn::Linear layer;
};

std::vector<at::ScalarType> types_of_gradients() {
  std::vector<at::ScalarType> types = {at::kFloat, at::kBFloat16};
  if (check_computes_in(DType::kF16).ok()) types.push_back(at::kHalf);
  return types;
}

// With Q of the last step: a Q of zeros would approximate each later gradient by zeros.
TEST(PowerSgd, AGradientOfZerosGivesZerosAndIsForgotten) {
  for (const auto type : types_of_gradients()) {
    for (const std::int64_t rank : {1, 2, 4}) {
      const auto models = make_models<OneMatrix>(2, type);
      const auto outcomes = test::run_threads(2, [&](Group& world) {
        const auto& model = models[std::size_t(world.rank())];
        const auto hook = std::make_shared<PowerSgd>(
            PowerSgdOptions{.rank = rank, .start_step = 2, .error_feedback = false, .min_compression_rate = 1});
        DataParallel ddp(model, world, hooked(hook));
        auto generator = at::detail::createCPUGenerator(7);
        const auto x = at::randn({8, 40}, generator, at::kFloat).to(type);
        const auto g = at::randn({8, 12}, generator, at::kFloat).to(type);
        double full = 0;
        for (int step = 0; step < 8; ++step) {
          ddp.zero_grad();
          const bool zeros = step == 3 || step == 4;
          (ddp.forward(x) * g * (zeros ? 0 : 1)).sum().backward();
          ddp.finish();
          const double norm = model->layer->weight.grad().to(at::kFloat).norm().item<double>();
          if (step == 0) full = norm;
          check(zeros ? norm == 0 : norm > 0.2 * full && norm < 1.1 * full, "step ", step, ": norm ", norm, " of ",
                full);
        }
        check(hook->elements().before > 0, "never compressed");
      });
      EXPECT_EQ(test::describe(outcomes), "") << "rank " << rank << " in " << type;
    }
  }
}

// As PyTorch, by Gram-Schmidt: LibTorch has no QR for 16 bits.
TEST(PowerSgd, OfAnyRankTakesGradientsOfSixteenBits) {
  for (const auto type : types_of_gradients()) {
    for (const std::int64_t rank : {1, 2, 3, 4}) {
      const auto models = make_models<OneMatrix>(2, type);
      const auto outcomes = test::run_threads(2, [&](Group& world) {
        const auto& model = models[std::size_t(world.rank())];
        auto generator = at::detail::createCPUGenerator(std::uint64_t(7 + world.rank()));
        const auto x = at::randn({8, 40}, generator, at::kFloat).to(type);
        const auto g = at::randn({8, 12}, generator, at::kFloat).to(type);
        auto truth = g.to(at::kFloat).t().matmul(x.to(at::kFloat));
        all_reduce(world, truth, ReduceOp::kAvg);
        const auto hook =
            std::make_shared<PowerSgd>(PowerSgdOptions{.rank = rank, .start_step = 2, .min_compression_rate = 1});
        DataParallel ddp(model, world, hooked(hook));
        auto total = at::zeros_like(truth);
        constexpr int kSteps = 80;
        for (int step = 0; step < kSteps; ++step) {
          ddp.zero_grad();
          (ddp.forward(x) * g).sum().backward();
          ddp.finish();
          total += model->layer->weight.grad();
        }
        check(hook->elements().before > 0, "never compressed");
        const double off = ((total / kSteps - truth).norm() / truth.norm()).item<double>();
        check(off < 0.1, "off by ", off);
      });
      EXPECT_EQ(test::describe(outcomes), "") << "rank " << rank << " in " << type;
    }
  }
}

TEST(PowerSgd, ANaNIsGoneWithItsStep) {
  run(2, 50, [](Group& world, std::shared_ptr<Branches> model) {
    auto options = hooked(std::make_shared<PowerSgd>(PowerSgdOptions{.start_step = 2, .min_compression_rate = 1}));
    options.finite_check = FiniteCheck::kThrow;
    DataParallel ddp(model, world, options);
    for (int step = 0; step < 8; ++step) {
      ddp.zero_grad();
      const bool bad = step == 3 || step == 5;
      auto x = sample(world.rank());
      if (bad && world.rank() == 1) x = x * std::numeric_limits<float>::infinity();
      ddp.forward(x).sum().backward();
      if (bad) {
        check_says(error_of([&] { ddp.finish(); }), "holds NaN or infinity on rank 1");
        continue;
      }
      ddp.finish();
      check(at::allclose(model->left->weight.grad(), (sample(0) + sample(1)).expand({2, 50}) / 2, 1e-3, 1e-3), "step ",
            step);
    }
  });
}

// A scale that is a power of two costs no bit, so what comes out is what comes out without one, to the bit: through
// steps that are left out as well, after which the scale is smaller.
TEST(PowerSgd, GivesTheSameWhateverTheLossIsScaledBy) {
  for (const double epsilon : {0.0, 0.01}) {
    run(2, 64, [&](Group& world, std::shared_ptr<Branches> model) {
      auto generator = at::detail::createCPUGenerator(std::uint64_t(7 + world.rank()));
      const auto x = at::randn({16, 64}, generator, at::kFloat), g = at::randn({16, 2}, generator, at::kFloat);
      const auto gradients = [&](bool scaled) {
        auto options = hooked(std::make_shared<PowerSgd>(
            PowerSgdOptions{.start_step = 2, .min_compression_rate = 1, .orthogonalization_epsilon = epsilon}));
        options.finite_check = FiniteCheck::kReport;
        DataParallel ddp(model, world, options);
        std::optional<LossScaler> scaler;
        if (scaled) scaler.emplace(ddp, LossScalerOptions{.initial_scale = 1024, .growth_interval = 2});
        std::vector<at::Tensor> found;
        for (int step = 0; step < 12; ++step) {
          ddp.zero_grad();
          const bool bad = step == 5 || step == 8;
          const auto loss = (ddp.forward(x) * g).sum() * (bad ? std::numeric_limits<float>::infinity() : 1.f);
          (scaler ? scaler->scale(loss) : loss).backward();
          ddp.finish();
          check(ddp.non_finite().has_value() == bad, "step ", step);
          if (scaler) scaler->update();
          if (!bad) found.push_back(model->left->weight.grad().clone());
        }
        check(!scaler || scaler->scale() == 4096, "the scale has changed: ", scaler ? scaler->scale() : 0);
        return found;
      };
      const auto plain = gradients(false), scaled = gradients(true);
      for (std::size_t i = 0; i < plain.size(); ++i) check(at::equal(plain[i], scaled[i]), "gradient ", i);
    });
  }
}

// A bucket that was finite itself in a step that was left out: nothing of its gradients may come later.
TEST(PowerSgd, ASkippedStepLeavesNoError) {
  run(2, 64, [](Group& world, std::shared_ptr<Branches> model) {
    auto generator = at::detail::createCPUGenerator(std::uint64_t(7 + world.rank()));
    const auto x = at::randn({16, 64}, generator, at::kFloat), g = at::randn({16, 2}, generator, at::kFloat);
    auto options = hooked(std::make_shared<PowerSgd>(PowerSgdOptions{.start_step = 2, .min_compression_rate = 1}));
    options.finite_check = FiniteCheck::kReport;
    options.first_bucket_bytes = 1, options.bucket_cap_mb = mebibytes(1);  // a bucket for each parameter
    DataParallel ddp(model, world, options);
    double largest = 0;
    for (int step = 0; step < 12; ++step) {
      const bool bad = step == 4 || step == 7;
      ddp.zero_grad();
      const auto left = (model->left->forward(x) * g).sum() * (bad ? 1e6f : 1.f);
      const auto right = model->right->forward(x).sum() * (bad ? std::numeric_limits<float>::infinity() : 1.f);
      (left + right).backward();
      ddp.finish();
      check(ddp.non_finite().has_value() == bad, "step ", step);
      if (!bad) largest = std::max(largest, model->left->weight.grad().norm().item<double>());
    }
    check(largest < 200, "a gradient of norm ", largest, " where those of the steps that count are 30");
  });
}

// The gradients of eleven steps, of which two overflow, and those that follow a checkpoint, after one of these too, in
// other objects, which begin with other buckets.
TEST(PowerSgd, ResumesBitIdenticallyFromItsCheckpoint) {
  for (const int saved_after : {2, 4, 5, 6, 8}) {
    const test::TemporaryFolder folder;
    run(2, 64, [&](Group& world, std::shared_ptr<Branches> model) {
      auto generator = at::detail::createCPUGenerator(std::uint64_t(7 + world.rank()));
      const auto x = at::randn({16, 64}, generator, at::kFloat), g = at::randn({16, 2}, generator, at::kFloat);
      std::vector<at::Tensor> found[2];
      for (const bool resumed : {false, true}) {
        const auto hook = std::make_shared<PowerSgd>(
            PowerSgdOptions{.start_step = 2, .min_compression_rate = 1, .orthogonalization_epsilon = 0.01});
        auto options = hooked(hook);
        options.finite_check = FiniteCheck::kReport;
        options.first_bucket_bytes = 1, options.bucket_cap_mb = mebibytes(1);  // a bucket for each parameter
        DataParallel ddp(model, world, options);
        LossScaler scaler(ddp, {.initial_scale = 1024, .growth_interval = 2});
        PowerSgdState power_sgd(*hook, ddp);
        if (resumed) {
          StateDict dict(StateUse::kLoad);
          dict.add("power_sgd", power_sgd);
          scaler.state(dict);
          dict.load(world, CheckpointReader::open(folder.path()).or_throw()).or_throw();
        }
        for (int step = resumed ? saved_after + 1 : 0; step < 11; ++step) {
          ddp.zero_grad();
          const bool bad = step == 5 || step == 8;
          const auto left = (model->left->forward(x) * g).sum() * (bad ? std::numeric_limits<float>::infinity() : 1.f);
          scaler.scale(left + model->right->forward(x).square().sum()).backward();
          ddp.finish();
          const bool skipped = ddp.reducer().skips_step();
          check(skipped == bad, "step ", step);
          scaler.update();
          if (step > saved_after && !bad)
            for (const auto& parameter : model->parameters()) found[resumed].push_back(parameter.grad().clone());
          if (step != saved_after || resumed) continue;
          StateDict dict(StateUse::kSave);
          dict.add("power_sgd", power_sgd);
          scaler.state(dict);
          save_checkpoint(world, folder.path(), dict.boxes(), dict.facts()).or_throw();
        }
      }
      check(found[0].size() == found[1].size() && !found[0].empty(), "gradients");
      for (std::size_t i = 0; i < found[0].size(); ++i)
        check(at::equal(found[0][i], found[1][i]), "saved after step ", saved_after, ": gradient ", i);
    });
  }
}

// Three ranks go on where two stood: what the average lacked, it lacks still.
TEST(PowerSgd, OnAnotherNumberOfRanksTheErrorsHaveTheSameMean) {
  const test::TemporaryFolder folder;
  at::Tensor mean;
  for (const int ranks : {2, 3}) {
    run(ranks, 64, [&](Group& world, std::shared_ptr<Branches> model) {
      const auto hook = std::make_shared<PowerSgd>(PowerSgdOptions{.start_step = 2, .min_compression_rate = 1});
      DataParallel ddp(model, world, hooked(hook));
      if (ranks == 3) {
        StateDict dict(StateUse::kLoad);
        hook->state(dict, world, parameters_of(*model), false);
        dict.load(world, CheckpointReader::open(folder.path()).or_throw()).or_throw();
      } else {
        auto generator = at::detail::createCPUGenerator(std::uint64_t(7 + world.rank()));
        const auto x = at::randn({16, 64}, generator, at::kFloat), g = at::randn({16, 2}, generator, at::kFloat);
        for (int step = 0; step < 4; ++step) {
          ddp.zero_grad();
          (ddp.forward(x) * g).sum().backward();
          ddp.finish();
        }
      }
      StateDict now(StateUse::kSave);
      hook->state(now, world, parameters_of(*model), false);
      check(now.boxes().size() == 4, now.boxes().size(), " tensors: Q and error of two weights");
      for (const StateBox& box : now.boxes()) {
        if (box.key != TensorKey{"left.weight", "power_sgd_error"}) continue;
        check(box.shape == TensorShape{std::uint64_t(ranks), 128}, "its shape");
        auto average = at::from_blob(box.data, {128}, at::kFloat).clone();
        check(average.norm().item<double>() > 1, "there is an error to speak of");
        all_reduce(world, average, ReduceOp::kAvg);
        if (world.rank() == 0 && ranks == 2) mean = average;
        if (ranks == 3) check(at::allclose(average, mean, 1e-5, 1e-5), "the mean");
      }
      if (ranks == 2) save_checkpoint(world, folder.path(), now.boxes(), now.facts()).or_throw();
    });
  }
}

TEST(PowerSgd, StateThatDoesNotFitIsReportedByName) {
  const test::TemporaryFolder folder;
  std::vector<float> ones(4 * 128, 1);
  const auto load = [&](const StateBox& box, const CheckpointValues& progress = {}) {
    save_checkpoint(folder.path(), std::vector{box}, {.step = 1, .values = progress}).or_throw();
    std::string words;
    run(1, 64, [&](Group& world, std::shared_ptr<Branches> model) {
      PowerSgd hook;
      StateDict dict(StateUse::kLoad);
      hook.state(dict, world, parameters_of(*model), false);
      dict.allow_other_tensors();
      const Status loaded = dict.load(world, CheckpointReader::open(folder.path()).or_throw());
      words = loaded.ok() ? "loaded" : to_string(loaded.error());
    });
    return words;
  };
  const auto q = [&](TensorShape shape, const char* parameter = "left.weight") {
    return StateBox{.key = {parameter, "power_sgd_q"}, .shape = std::move(shape), .data = ones.data()};
  };
  const auto error = [&](TensorShape shape) {
    return StateBox{.key = {"left.weight", "power_sgd_error"}, .shape = std::move(shape), .data = ones.data()};
  };
  EXPECT_EQ(load(q({64, 1})), "loaded");
  EXPECT_EQ(load(error({4, 128})), "loaded") << "four ranks saved, one goes on";
  EXPECT_THAT(load(q({64, 2})), HasSubstr("power_sgd_q of left.weight is f32[64, 2], expected f32[64, 1]"));
  EXPECT_THAT(load(q({64, 1}, "left.bias")), HasSubstr("power_sgd_q of left.bias is of no matrix of this model"));
  EXPECT_THAT(load(error({4, 127})), HasSubstr("expected f32[4, 128]"));
  EXPECT_THAT(load(error({0, 128})), HasSubstr("power_sgd_error of left.weight"));
  EXPECT_THAT(load(error({128})), HasSubstr("expected f32[128, 128]"));
  EXPECT_THAT(load(q({64, 1}), {{"power_sgd_steps", std::int64_t(-1)}}),
              HasSubstr("-1 steps of PowerSGD with 0 draws make no sense"));
  EXPECT_THAT(load(q({64, 1}), {{"power_sgd_error_scale", 0.0}}), HasSubstr("PowerSGD's scale of the loss is 0"));
}

TEST(PowerSgd, RefusesWhatCannotBeRight) {
  const auto words = [](PowerSgdOptions options) { return error_of([&] { PowerSgd hook(options); }); };
  EXPECT_THAT(words({.rank = 0}), HasSubstr("PowerSgd: rank is 0; expected 1 or more"));
  EXPECT_THAT(words({.start_step = 1}), HasSubstr("PowerSgd: start_step is 1; expected 2 or more with error_feedback"));
  EXPECT_THAT(words({.start_step = 0, .error_feedback = false, .warm_start = false}), "no error");
  EXPECT_THAT(words({.orthogonalization_epsilon = -1}), HasSubstr("orthogonalization_epsilon is -1"));
}

TEST(LocalSgd, AveragesGradientsAtFirstAndThenWeights) {
  run(4, 3, [](Group& world, std::shared_ptr<Branches> model) {
    const Group pair = world.new_subgroups(2).or_throw();
    for (const bool in_pairs : {false, true}) {
      DataParallel ddp(model, world, hooked(local_sgd({.start_step = 2, .subgroup = in_pairs ? pair : Group()})));
      PeriodicAverager averager(model->parameters(), world, {.period = 3, .warmup_steps = 2});
      for (int step = 0; step < 8; ++step) {
        ddp.zero_grad();
        ddp.forward(at::full({1, 3}, float(world.rank()))).sum().backward();
        ddp.finish();
        const float mean = step < 2 ? 1.5f : in_pairs ? float(world.rank() / 2 * 2) + 0.5f : float(world.rank());
        check(at::equal(model->left->weight.grad(), at::full({2, 3}, mean)), "gradient, step ", step);
        {
          const at::NoGradGuard no_grad;
          model->left->weight.sub_(model->left->weight.grad());
        }
        check(averager.average() == (step == 2 || step == 5), "averaged in step ", step);
        auto most = model->left->weight.detach().clone();
        all_reduce(world, most, ReduceOp::kMax);
        const double apart = (most - model->left->weight).abs().max().item<double>();
        if (step < 3 || step == 5) {
          check(apart < 1e-5, "weights differ by ", apart, " after step ", step);
        } else if (world.rank() == 3) {  // its gradient is the largest, so its weights are the least
          check(apart > 0.5, "weights are the same after step ", step);
        }
      }
    }
  });
  EXPECT_THAT(error_of([] { local_sgd({.start_step = -1}); }), HasSubstr("start_step is -1; expected 0 or more"));
  EXPECT_THAT(error_of([] { PeriodicAverager averager({}, Group(), {.period = 0}); }),
              HasSubstr("the period is 0 steps; expected 1 or more"));
}

}  // namespace
}  // namespace tutti
