#include "tutti/parallel/data_parallel/data_parallel.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <functional>
#include <thread>

#include "tests/harness/eventually.h"
#include "tutti/comm/collectives.h"
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

class Normed : public torch::nn::Module {
 public:
  Normed() : norm(register_module("norm", torch::nn::BatchNorm1d(3))) {}
  at::Tensor forward(const at::Tensor& x) { return norm->forward(x); }
  torch::nn::BatchNorm1d norm;
};

// One layer, used twice.
class Tied : public torch::nn::Module {
 public:
  Tied() : in(register_module("in", torch::nn::Linear(3, 3))), out(register_module("out", in)) {}
  at::Tensor forward(const at::Tensor& x) { return out->forward(at::tanh(in->forward(x))); }
  torch::nn::Linear in, out;
};

TEST(DataParallel, TakesTheWeightsAndBuffersOfRankZero) {
  auto models = make_models<Branches>(3);
  const auto expected = models[0]->right->weight.detach().clone();
  ASSERT_FALSE(at::equal(models[2]->right->weight, expected));
  const auto outcomes = test::run_threads(3, [&](Group& world) {
    DataParallel ddp(models[world.rank()], world, kPlain);
    check(at::equal(ddp.module().right->weight, expected), "weights differ");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// Of every shape of memory: dense in another order, with holes, expanded, overlapping, empty.
TEST(DataParallel, TakesBuffersThatAreNotARangeOfMemory) {
  struct Made {
    std::shared_ptr<Branches> model = std::make_shared<Branches>();
    at::Tensor holes, around;
  };
  const auto make = [](int rank) {
    Made made;
    auto& model = *made.model;
    const auto fill = [&](at::IntArrayRef sizes) { return at::full(sizes, rank + 1.0f); };
    model.register_buffer("transposed", at::arange(12, at::kFloat).add(rank).view({3, 4}).t());
    model.register_buffer("mask", fill({1}).expand({1000}));
    model.register_buffer("large_mask", fill({1, 30000}).expand({200, 30000}));
    model.register_buffer("middle", fill({3, 1, 2}).expand({3, 5, 2}));
    made.around = at::full({4, 10}, -1.0f - rank);
    made.holes = model.register_buffer("holes", made.around.narrow(1, 2, 3));
    made.holes.copy_(at::arange(12, at::kFloat).add(rank).view({4, 3}));
    model.register_buffer("large_holes", fill({300, 300}).narrow(1, 0, 299));
    model.register_buffer("expanded_holes", fill({4, 1, 10}).narrow(2, 0, 3).expand({4, 7, 3}));
    model.register_buffer("windows", at::arange(10, at::kFloat).add(rank).unfold(0, 4, 1));
    model.register_buffer("empty", at::empty({0, 3}));
    model.register_buffer("complex", at::full({2}, c10::complex<float>(float(rank), 1.0f)));
    return made;
  };
  const Made expected = make(0), ranks[] = {make(0), make(1)};
  for (const auto& made : ranks) made.model->left->weight.set_requires_grad(false);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    const auto& made = ranks[world.rank()];
    DataParallel ddp(made.model, world, kPlain);
    for (int step = 0; step < 2; ++step) {
      for (const auto& item : expected.model->named_buffers()) {
        const auto found = made.model->named_buffers()[item.key()];
        check(at::equal(found, item.value()), item.key(), ", step ", step);
      }
      check(at::all(made.around.narrow(1, 0, 2) == -1.0f - float(world.rank())).item<bool>(), "wrote around a buffer");
      check(at::all(made.around.narrow(1, 5, 5) == -1.0f - float(world.rank())).item<bool>(), "wrote around a buffer");
      if (world.rank() == 1) made.holes.fill_(7);
      ddp.forward(at::ones({1, 3}));
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
  EXPECT_TRUE(at::equal(ranks[0].model->left->weight, ranks[1].model->left->weight)) << "frozen";
}

TEST(DataParallel, NamesABufferThatCannotBeSent) {
  const auto error = [](const at::Tensor& buffer) {
    std::string text;
    auto models = make_models<Branches>(2);
    for (const auto& model : models) model->register_buffer("mask", buffer);
    const auto outcomes = test::run_threads(2, [&](Group& world) {
      const auto error = error_of([&] { DataParallel ddp(models[world.rank()], world, kPlain); });
      if (world.rank() == 0) text = error;
    });
    return text + test::describe(outcomes);
  };
  EXPECT_THAT(error(at::empty({3}, at::TensorOptions().device(at::kMeta))),
              HasSubstr("the model's tensor mask, f32[3] on meta, is not on the CPU"));
  EXPECT_THAT(error(at::ones({3}).to_sparse()), HasSubstr("the model's tensor mask, f32[3], is not dense"));
}

TEST(DataParallel, ShowsTheFirstDifferenceBetweenModels) {
  std::vector models = {std::make_shared<Branches>(3), std::make_shared<Branches>(3), std::make_shared<Branches>(4)};
  const auto outcomes = test::run_threads(3, [&](Group& world) {
    const auto error = error_of([&] { DataParallel ddp(models[world.rank()], world, kPlain); });
    check_says(error, "tensor 1 is left.weight f32[2, 3] on rank 0, but left.weight f32[2, 4] on rank 2");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(DataParallel, ReportsAnotherTypeAndAnotherOrder) {
  auto models = make_models<Branches>(2);
  models[1]->right->to(at::kDouble);
  const std::vector turned = {std::make_shared<torch::nn::Module>(), std::make_shared<torch::nn::Module>()};
  for (const std::string name : {"a", "b"}) turned[0]->register_parameter(name, at::ones({2}));
  for (const std::string name : {"b", "a"}) turned[1]->register_parameter(name, at::ones({2}));
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    check_says(error_of([&] { DataParallel ddp(models[world.rank()], world, kPlain); }),
               "tensor 3 is right.weight f32[2, 3] on rank 0, but right.weight f64[2, 3] on rank 1");
    check_says(error_of([&] { Reducer reducer(turned[world.rank()], world, kPlain); }),
               "tensor 1 is a f32[2] on rank 0, but b f32[2] on rank 1");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(DataParallel, ReportsAMissingParameterAndAFrozenOne) {
  std::vector<std::shared_ptr<Branches>> models = make_models<Branches>(2);
  models[1]->left->weight.set_requires_grad(false);
  std::vector<std::shared_ptr<Branches>> extra = make_models<Branches>(2);
  extra[1]->register_parameter("more", at::ones({1}));
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    check_says(error_of([&] { DataParallel ddp(models[world.rank()], world, kPlain); }),
               "left.weight f32[2, 3] (not trained) on rank 1");
    check_says(error_of([&] { DataParallel ddp(extra[world.rank()], world, kPlain); }), "but more f32[1] on rank 1");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(DataParallel, NamesParametersWithoutAGradient) {
  auto models = make_models<Branches>(2);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    DataParallel ddp(models[world.rank()], world, kPlain);
    ddp.forward(at::ones({1, 3}), true, world.rank() == 1).sum().backward();
    const auto error = error_of([&] { ddp.finish(); });
    check_says(error, "rank 0: DataParallel: 2 of 4 parameters got no gradient in this step: right.weight, right.bias");
    check_says(error, "find_unused_parameters");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(DataParallel, FindUnusedAveragesWithZeros) {
  auto models = make_models<Branches>(2);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    auto options = kPlain;
    options.find_unused_parameters = true;
    DataParallel ddp(models[world.rank()], world, options);
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      ddp.forward(at::ones({1, 3}), true, world.rank() == 1 && step > 0).sum().backward();
      ddp.finish();
      check(at::equal(ddp.module().left->bias.grad(), at::ones({2})), "left");
      if (step == 0) check(!ddp.module().right->bias.grad().defined(), "unused everywhere, but has a gradient");
      if (step > 0) check(at::equal(ddp.module().right->bias.grad(), at::full({2}, 0.5)), "right");
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(DataParallel, FindUnusedWithViewsLeavesZeros) {
  auto models = make_models<Branches>(2);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    auto options = kPlain;
    options.find_unused_parameters = options.gradient_as_bucket_view = true;
    DataParallel ddp(models[world.rank()], world, options);
    ddp.forward(at::ones({1, 3}), true, false).sum().backward();
    ddp.finish();
    check(at::equal(ddp.module().left->bias.grad(), at::ones({2})), "left");
    check(at::equal(ddp.module().right->bias.grad(), at::zeros({2})), "right");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// What one rank gathered inside no_sync() belongs to the next synchronised step of all.
TEST(DataParallel, FindUnusedCountsWhatWasUsedInsideNoSync) {
  for (const std::size_t in_place_bytes : {std::size_t(0), std::size_t(1) << 20}) {
    auto models = make_models<Branches>(2);
    const auto outcomes = test::run_threads(2, [&](Group& world) {
      auto options = kPlain;
      options.find_unused_parameters = true;
      options.in_place_bytes = in_place_bytes;
      DataParallel ddp(models[world.rank()], world, options);
      const auto x = at::ones({1, 3});
      for (int step = 0; step < 2; ++step) {
        ddp.zero_grad();
        {
          const auto pause = ddp.no_sync();
          ddp.forward(x, true, world.rank() == 1).sum().backward();
        }
        ddp.forward(x, true, false).sum().backward();
        ddp.finish();
        check(at::equal(ddp.module().left->bias.grad(), at::full({2}, 2.0)), "left");
        const auto right = ddp.module().right->bias.grad();
        check(right.defined() && at::equal(right, at::full({2}, 0.5)), "right, step ", step);
      }
      ddp.zero_grad();
      ddp.forward(x, true, false).sum().backward();
      ddp.finish();
      check(!ddp.module().right->bias.grad().defined(), "unused again");
    });
    EXPECT_EQ(test::describe(outcomes), "") << in_place_bytes;
  }
}

TEST(DataParallel, ATiedWeightIsSentOnceAndAveragedOnce) {
  for (const auto overlap : {Overlap::kOn, Overlap::kOff}) {
    for (const bool views : {false, true}) {
      auto models = make_models<Tied>(2);
      ASSERT_EQ(models[0]->named_parameters().size(), 4u);
      const auto outcomes = test::run_threads(2, [&](Group& world) {
        auto options = kPlain;
        options.overlap = overlap;
        options.gradient_as_bucket_view = views;
        options.first_bucket_bytes = 1, options.bucket_cap_mb = mebibytes(1);
        DataParallel ddp(models[world.rank()], world, options);
        check(ddp.stats().bytes_per_step == 4 * (3 * 3 + 3), "bytes ", ddp.stats().bytes_per_step);
        const auto loss = [](Tied& model, int rank) { return model.forward(at::full({1, 3}, rank + 1.0f)).sum(); };
        Tied alone;
        {
          const at::NoGradGuard no_grad;
          alone.in->weight.copy_(ddp.module().in->weight);
          alone.in->bias.copy_(ddp.module().in->bias);
        }
        ((loss(alone, 0) + loss(alone, 1)) / 2).backward();
        for (int step = 0; step < 2; ++step) {
          ddp.zero_grad();
          ddp.forward(at::full({1, 3}, world.rank() + 1.0f)).sum().backward();
          ddp.finish();
          check(at::allclose(ddp.module().in->weight.grad(), alone.in->weight.grad()), "weight, step ", step);
          check(at::allclose(ddp.module().in->bias.grad(), alone.in->bias.grad()), "bias, step ", step);
        }
      });
      EXPECT_EQ(test::describe(outcomes), "") << (views ? "views" : "no views");
    }
  }
}

// Two that one backward() goes through, and a third that trains in between.
TEST(DataParallel, SeveralModelsShareAGroup) {
  for (const auto overlap : {Overlap::kOn, Overlap::kOff}) {
    auto first = make_models<Tied>(2), second = make_models<Tied>(2);
    auto third = make_models<Branches>(2);
    const auto outcomes = test::run_threads(2, [&](Group& world) {
      auto options = kPlain;
      options.overlap = overlap;
      options.first_bucket_bytes = 1, options.bucket_cap_mb = mebibytes(1);
      const auto me = std::size_t(world.rank());
      DataParallel lower(first[me], world, options), upper(second[me], world, options);
      DataParallel other(third[me], world, options);
      for (int step = 0; step < 3; ++step) {
        lower.zero_grad();
        upper.zero_grad();
        other.zero_grad();
        const auto x = [](int rank) { return at::full({1, 3}, float(rank) + 1); };
        upper.forward(lower.forward(x(world.rank()))).sum().backward();
        other.forward(x(world.rank())).sum().backward();
        other.finish();
        upper.finish();
        lower.finish();
        check(at::equal(third[me]->left->weight.grad(), at::full({2, 3}, 1.5f)), "the third, step ", step);
        const auto mine = first[me]->in->weight.grad().clone(), above = second[me]->in->weight.grad().clone();
        lower.zero_grad();
        upper.zero_grad();
        const auto lower_pause = lower.no_sync();
        const auto upper_pause = upper.no_sync();
        ((second[me]->forward(first[me]->forward(x(0))) + second[me]->forward(first[me]->forward(x(1)))).sum() / 2)
            .backward();
        check(at::allclose(mine, first[me]->in->weight.grad()), "the lower one, step ", step);
        check(at::allclose(above, second[me]->in->weight.grad()), "the upper one, step ", step);
      }
    });
    EXPECT_EQ(test::describe(outcomes), "");
  }
}

TEST(DataParallel, ReportsForgottenAndRepeatedCalls) {
  auto models = make_models<Branches>(1);
  const auto outcomes = test::run_threads(1, [&](Group& world) {
    DataParallel ddp(models[0], world, kPlain);
    ddp.forward(at::ones({1, 3})).sum().backward();
    check_says(error_of([&] {
                 ddp.forward(at::ones({1, 3}));
               }),
               "rank 0: DataParallel: forward() after a backward() without finish(): the gradient of right.");
    check_says(error_of([&] { ddp.forward(at::ones({1, 3})); }), "(hint: call finish() after each backward(), or");
    check_says(
        error_of([&] {
          models[0]->forward(at::ones({1, 3})).sum().backward();
        }),
        "was made twice before finish() (hint: call finish() after each backward(), accumulate inside no_sync()");
    ddp.finish();
    check_says(error_of([&] { ddp.finish(); }), "found no gradient of this step");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(DataParallel, TakesBuffersFromRankZeroBeforeEachForward) {
  auto models = make_models<Normed>(2);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    DataParallel ddp(models[world.rank()], world, kPlain);
    const auto x = at::arange(12, at::kFloat).view({4, 3}) + world.rank();
    for (int step = 0; step < 2; ++step) {
      ddp.forward(x).sum().backward();
      ddp.finish();
      ddp.zero_grad();
    }
    auto mean = ddp.module().norm->running_mean.clone();
    all_reduce(world, mean, ReduceOp::kMax);
    const auto rank_one_ahead_by = (mean - models[0]->norm->running_mean).abs().max().item<float>();
    // One forward since rank 0's was taken.
    check(std::abs(rank_one_ahead_by - 0.1f) < 1e-5f, "the ranks' means are apart by ", rank_one_ahead_by);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(DataParallel, LaunchesInTheObservedOrderFromTheSecondStepOn) {
  auto models = make_models<Branches>(2);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    auto options = kPlain;
    options.first_bucket_bytes = 1, options.bucket_cap_mb = mebibytes(1);
    DataParallel ddp(models[world.rank()], world, options);
    check(ddp.stats().buckets.front().front() == "right.bias", "first the reverse of the registration");
    const auto x = at::ones({1, 3});
    const auto right = models[world.rank()]->right->forward(x).sum(),
               left = models[world.rank()]->left->forward(x).sum();
    (right * left).backward();  // what came last goes first
    ddp.finish();
    const auto after = ddp.stats().buckets;
    const auto mine = after.front().front();
    check(after.size() == 4, "four buckets");
    check(ddp.stats().steps == 1 && ddp.stats().bytes_per_step == 4 * (3 * 2 + 2) * 2, "stats");
    check(mine.starts_with("left."), "the first bucket is that of ", mine);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(DataParallel, AnErrorOfAPeerComesOutOfFinish) {
  auto models = make_models<Branches>(2);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    DataParallel ddp(models[world.rank()], world, kPlain);
    ddp.forward(at::ones({1, 3})).sum().backward();
    if (world.rank() == 1) {
      world.abort(Error{.code = Code::kCorrupt, .detail = "the disk is on fire"});
      return;
    }
    check_says(error_of([&] { ddp.finish(); }), "the disk is on fire");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// The limit is 30 s; an exception must not wait for it with a bucket in flight.
TEST(DataParallel, AnExceptionBetweenBackwardAndFinishEndsWhatIsInFlight) {
  auto models = make_models<Branches>(2);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    auto options = kPlain;
    options.overlap = Overlap::kOn;
    DataParallel ddp(models[world.rank()], world, options);
    if (world.rank() == 1) {
      auto never = at::empty({1});
      recv(world, never, 0);
    }
    ddp.forward(at::ones({1, 3})).sum().backward();
    throw std::runtime_error("the loss is NaN");
  });
  EXPECT_EQ(outcomes[0].error, "the loss is NaN");
  EXPECT_THAT(outcomes[1].error, HasSubstr("an exception ended the call on this rank"));
}

// Whether a thread of this process waits in the kernel.
bool sleeps(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  return std::getline(file, line) && line.find(") S ") != std::string::npos;
}

// What is destroyed while another exception unwinds the stack, but not by it, waits for what is in flight.
TEST(DataParallel, WorksAndEndsWithinADestructorThatAnExceptionCalls) {
  struct LastStep {
    std::function<void()> act;
    ~LastStep() { act(); }
  };
  auto models = make_models<Branches>(2);
  std::atomic<pid_t> launched = 0;  // rank 0's thread
  std::atomic<bool> gone = false;
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    auto options = kPlain;
    options.overlap = Overlap::kOn;
    const auto train = [&] {
      DataParallel ddp(models[world.rank()], world, options);
      if (world.rank() == 1) {
        while (!launched) std::this_thread::yield();
        check(test::eventually([&] { return gone || sleeps(launched); }), "rank 0 neither waits nor has gone on");
        check(!gone, "rank 0 did not wait for its gradients, which rank 1 has not given");
      }
      ddp.forward(at::ones({1, 3})).sum().backward();
      if (world.rank() == 0) launched = ::gettid();
    };
    try {
      const LastStep last{train};
      throw std::runtime_error("the disk is full");
    } catch (const std::runtime_error&) {
    }
    if (world.rank() == 0) gone = true;
    check(all_reduce(world, 1) == 2, "the group lives");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(DataParallel, RefusesAModelWithNothingToTrain) {
  const auto models = make_models<Branches>(2);
  for (const auto& model : models)
    for (auto& parameter : model->parameters()) parameter.set_requires_grad(false);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    const auto& model = models[world.rank()];
    const std::string frozen = error_of([&] { DataParallel ddp(model, world, kPlain); });
    check_says(frozen, "rank " + std::to_string(world.rank()) +
                           ": DataParallel: of the model's 4 parameters none requires a gradient");
    check_says(frozen, "call requires_grad_() of those to train before DataParallel is made");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(DataParallel, RefusesAModelOfWhichAllIsIgnoredAndOneThatIsEmpty) {
  const auto models = make_models<Branches>(2);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    auto ignores_all = kPlain;
    ignores_all.params_and_buffers_to_ignore = {"left.weight", "left.bias", "right.weight", "right.bias"};
    const auto& model = models[world.rank()];
    check_says(error_of([&] { DataParallel ddp(model, world, ignores_all); }),
               "DataParallelOptions::params_and_buffers_to_ignore names all parameters that require a gradient (hint: "
               "leave some out");
    const auto empty = std::make_shared<torch::nn::Module>();
    check_says(error_of([&] { const Reducer reducer(empty, world, kPlain); }),
               "the model has no parameters, so there is nothing to average (hint: register those that it has");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// The rank whose model is frozen does not leave alone: all hear of the difference.
TEST(DataParallel, AModelThatIsFrozenOnOneRankDiffers) {
  const auto models = make_models<Branches>(2);
  for (auto& parameter : models[1]->parameters()) parameter.set_requires_grad(false);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    check_says(error_of([&] { DataParallel ddp(models[world.rank()], world, kPlain); }), "(not trained) on rank 1");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
