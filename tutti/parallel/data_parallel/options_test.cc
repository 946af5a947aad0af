// What DataParallelOptions change, one by one, and what is said of those that cannot be right.
#include "tutti/parallel/data_parallel/options.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <limits>

#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/data_parallel/gradient_consumer.h"
#include "tutti/parallel/data_parallel/hooks/comm_hook.h"
#include "tutti/parallel/data_parallel/hooks/compression.h"
#include "tutti/parallel/data_parallel/join.h"
#include "tutti/parallel/data_parallel/test_models.h"
#include "tutti/tensor/collectives.h"
#include "tutti/tensor/compat.h"

namespace tutti {
namespace {

using test::Branches;
using test::check;
using test::check_says;
using test::error_of;
using test::kPlain;
using test::make_models;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void expect_ok(const std::vector<test::Outcome>& outcomes) { EXPECT_EQ(test::describe(outcomes), ""); }

// `body` gets this rank's model.
template <class M>
void run(std::vector<std::shared_ptr<M>> models, const std::function<void(Group&, std::shared_ptr<M>)>& body) {
  expect_ok(test::run_threads(int(models.size()), [&](Group& world) { body(world, models[world.rank()]); }));
}
using Body = std::function<void(Group&, std::shared_ptr<Branches>)>;
using Model = std::shared_ptr<Branches>;
void run_branches(int ranks, const Body& body) { run<Branches>(make_models<Branches>(ranks), body); }

DataParallelOptions with_option(const std::function<void(DataParallelOptions&)>& change) {
  auto options = kPlain;
  change(options);
  return options;
}

const at::Tensor kOnes = at::ones({1, 3});

TEST(DataParallelOptions, ThatDifferBetweenRanksAreShown) {
  run_branches(3, [](Group& world, Model model) {
    const auto options = with_option([&](auto& o) { o.bucket_cap_mb = mebibytes(world.rank() == 2 ? 1024 : 2048); });
    check_says(error_of([&] { DataParallel ddp(model, world, options); }),
               "the ranks gave DataParallel different options: bucket_cap_mb is 0.001953125 on rank 0, but "
               "0.0009765625 "
               "on rank 2");
    const auto hooks =
        with_option([&](auto& o) { o.hook = world.rank() == 1 ? bf16_compression() : f16_compression(); });
    check_says(error_of([&] { DataParallel ddp(model, world, hooks); }),
               "hook is f16_compression on rank 0, but bf16_compression on rank 1");
    const auto computes = with_option([&](auto& o) { o.autocast = world.rank() == 1 ? DType::kF32 : DType::kBF16; });
    check_says(error_of([&] { DataParallel ddp(model, world, computes); }),
               "autocast is bf16 on rank 0, but f32 on rank 1");
  });
}

// Each is told by its name and in the words in which a program gives it.
TEST(DataParallelOptions, AllOfThemAreCompared) {
  run_branches(2, [](Group& world, Model model) {
    const auto differs = [&](const std::function<void(DataParallelOptions&)>& on_rank_1, const std::string& words) {
      const auto options = world.rank() == 1 ? with_option(on_rank_1) : kPlain;
      check_says(error_of([&] { DataParallel ddp(model, world, options); }),
                 "the ranks gave DataParallel different options: " + words + " on rank 1");
    };
    differs([](auto& o) { o.first_bucket_bytes = 8; }, "first_bucket_bytes is 1048576 on rank 0, but 8");
    differs([](auto& o) { o.in_place_bytes = 8; }, "in_place_bytes is 262144 on rank 0, but 8");
    differs([](auto& o) { o.overlap = Overlap::kOn; }, "overlap is Overlap::kAuto on rank 0, but Overlap::kOn");
    differs([](auto& o) { o.broadcast_buffers = false; }, "broadcast_buffers is true on rank 0, but false");
    differs([](auto& o) { o.find_unused_parameters = true; }, "find_unused_parameters is false on rank 0, but true");
    differs([](auto& o) { o.gradient_as_bucket_view = true; }, "gradient_as_bucket_view is false on rank 0, but true");
    differs([](auto& o) { o.static_graph = true; }, "static_graph is false on rank 0, but true");
    differs(
        [](auto& o) {
          o.params_and_buffers_to_ignore = {"right.weight", "left.bias"};
        },
        "params_and_buffers_to_ignore is [] on rank 0, but [left.bias, right.weight]");
    differs([](auto& o) { o.delay_all_reduce_named_params = {"left.bias"}; },
            "delay_all_reduce_named_params is [] on rank 0, but [left.bias]");
    differs([](auto& o) { o.sparse = {"left.bias"}; }, "sparse is [] on rank 0, but [left.bias]");
    differs([](auto& o) { o.finite_check = FiniteCheck::kReport; },
            "finite_check is FiniteCheck::kInReduction on rank 0, but FiniteCheck::kReport");
    differs([](auto& o) { o.logical_ranks = 2; }, "logical_ranks is 0 on rank 0, but 2");
    differs([](auto& o) { o.allow_empty_batches = true; }, "allow_empty_batches is false on rank 0, but true");
  });
}

TEST(DataParallelOptions, ThatExcludeOneAnotherOrNameNothingGetASentence) {
  run_branches(1, [](Group& world, Model model) {
    const auto says = [&](const std::function<void(DataParallelOptions&)>& change, const char* words) {
      check_says(error_of([&] { DataParallel ddp(model, world, with_option(change)); }), words);
    };
    says([](auto& o) { o.hook = bf16_compression(), o.gradient_as_bucket_view = true; },
         "drop gradient_as_bucket_view");
    says([](auto& o) { o.find_unused_parameters = o.static_graph = true; }, "drop find_unused_parameters");
    says([](auto& o) { o.params_and_buffers_to_ignore = {"left.wieght"}; },
         "DataParallelOptions::params_and_buffers_to_ignore has \"left.wieght\", which the model does not have");
    says([](auto& o) { o.delay_all_reduce_named_params = {"x"}; },
         "DataParallelOptions::delay_all_reduce_named_params has \"x\"");
    says([](auto& o) { o.bucket_cap_mb = -1; }, "DataParallelOptions::bucket_cap_mb is -1");
    says([](auto& o) { o.sparse = {"y"}; },
         "take a name of named_parameters() or named_buffers(), for example "
         "left.weight");
  });
}

// Between hosts it is the wire that works, whoever computes on the cores.
TEST(DataParallelOptions, GradientsAreSentDuringBackwardBetweenHosts) {
  const auto models = make_models<Branches>(2);
  const auto body = [&](Group& world) {
    for (const auto overlap : {Overlap::kAuto, Overlap::kOff}) {
      DataParallel ddp(models[world.rank()], world, with_option([&](auto& o) { o.overlap = overlap; }));
      ddp.zero_grad();
      ddp.forward(kOnes * float(world.rank() + 1)).sum().backward();
      ddp.finish();
      check(at::equal(models[world.rank()]->left->weight.grad(), at::full({2, 3}, 1.5f)), "the average");
      check(ddp.stats().overlapped == (overlap == Overlap::kAuto), "overlapped ", ddp.stats().overlapped);
    }
  };
  expect_ok(test::run_threads(2, body, {.network = ModelledNetwork{.between = {.latency = 1e-5, .bandwidth = 1e9}}}));
}

TEST(DataParallelOptions, StaticGraphFindsOutWhatIsNeverUsed) {
  for (const auto overlap : {Overlap::kOn, Overlap::kOff}) {
    run_branches(2, [&](Group& world, Model model) {
      DataParallel ddp(model, world, with_option([&](auto& o) { o.static_graph = true, o.overlap = overlap; }));
      for (int step = 0; step < 3; ++step) {
        ddp.zero_grad();
        ddp.forward(kOnes * float(world.rank() + 1), true, false).sum().backward();
        ddp.finish();
        check(at::equal(model->left->weight.grad(), at::full({2, 3}, 1.5f)), "left, step ", step);
        check(!model->right->weight.grad().defined(), "unused, but has a gradient");
      }
      const auto stats = ddp.stats();
      check(stats.rebuilt && stats.unused == std::vector<std::string>{"right.weight", "right.bias"}, "unused");
      check(stats.bytes_per_step == 4 * 8, "bytes ", stats.bytes_per_step);
      ddp.zero_grad();
      const auto later = ddp.forward(kOnes, true, true).sum();
      check_says(error_of([&] { later.backward(); }),
                 "rank " + std::to_string(world.rank()) + ": DataParallel: the gradient of right.");
    });
  }
}

TEST(DataParallelOptions, StaticGraphCountsNestedBackwards) {
  run_branches(2, [](Group& world, Model model) {
    DataParallel ddp(model, world, with_option([](auto& o) { o.static_graph = true, o.overlap = Overlap::kOn; }));
    const auto backward = [&] { model->forward(kOnes * float(world.rank() + 1)).sum().backward(); };
    for (int step = 0; step < 2; ++step) {
      ddp.zero_grad();
      backward();
      backward();
      ddp.finish();
      check(at::equal(model->left->weight.grad(), at::full({2, 3}, 3.0f)), "step ", step);
    }
    backward();
    check_says(error_of([&] { ddp.finish(); }), "came once instead of 2 times");
  });
}

TEST(DataParallelOptions, StaticGraphIsTheSameOnEveryRank) {
  run_branches(2, [](Group& world, Model model) {
    DataParallel ddp(model, world, with_option([](auto& o) { o.static_graph = true; }));
    ddp.forward(kOnes, true, world.rank() == 1).sum().backward();
    const auto error = error_of([&] { ddp.finish(); });
    check_says(error, "the gradient of right.weight came 0 times on rank 0, but once on rank 1");
    check_says(error, "static_graph promises the same on every rank; without it, set find_unused_parameters");
  });
}

TEST(DataParallelOptions, WhatIsIgnoredStaysEachRanksOwn) {
  auto models = make_models<Branches>(2);
  for (int rank = 0; rank < 2; ++rank) models[rank]->register_buffer("own", at::full({2 + rank}, float(rank)));
  const auto before = models[1]->right->bias.detach().clone();
  run<Branches>(models, [&](Group& world, Model model) {
    DataParallel ddp(model, world, with_option([](auto& o) {
                       o.params_and_buffers_to_ignore = {"own", "right.bias"};
                     }));
    if (world.rank() == 1) check(at::equal(model->right->bias, before), "the ignored weight was overwritten");
    ddp.forward(kOnes * float(world.rank() + 1)).mul(float(world.rank() + 1)).sum().backward();
    ddp.finish();
    check(at::equal(model->right->bias.grad(), at::full({2}, float(world.rank() + 1))), "averaged, though ignored");
    check(at::equal(model->left->bias.grad(), at::full({2}, 1.5f)), "not averaged");
    check(model->named_buffers()["own"].size(0) == 2 + world.rank(), "buffer");
    ddp.zero_grad();
    check(!model->right->bias.grad().defined(), "zero_grad() is of the whole model");
  });
}

TEST(DataParallelOptions, DelayedGradientsAddUpUntilAsked) {
  for (const bool views : {false, true}) {
    run_branches(2, [&](Group& world, Model model) {
      DataParallel ddp(
          model, world, with_option([&](auto& o) {
            o.delay_all_reduce_named_params = {"right.weight", "right.bias"}, o.gradient_as_bucket_view = views;
          }));
      check(ddp.stats().delayed == std::vector<std::string>{"right.weight", "right.bias"}, "names");
      for (int round = 0; round < 2; ++round) {
        for (int step = 0; step < 3; ++step) {
          ddp.zero_grad();
          ddp.forward(kOnes * float(world.rank() + 1)).sum().backward();
          ddp.finish();
          check(at::equal(model->left->weight.grad(), at::full({2, 3}, 1.5f)), "left");
          check(at::equal(model->right->weight.grad(), at::full({2, 3}, float((step + 1) * (world.rank() + 1)))),
                "right, step ", step);
        }
        ddp.average_delayed();
        check(at::equal(model->right->weight.grad(), at::full({2, 3}, 4.5f)), "averaged");
      }
    });
  }
}

class Table : public torch::nn::Module {
 public:
  explicit Table(bool sparse)
      : rows(register_module("rows", torch::nn::Embedding(torch::nn::EmbeddingOptions(6, 2).sparse(sparse)))),
        out(register_module("out", torch::nn::Linear(2, 1))) {}
  at::Tensor forward(const at::Tensor& which) { return out->forward(rows->forward(which)).sum(); }
  torch::nn::Embedding rows;
  torch::nn::Linear out;
};

at::Tensor rows_of(int rank, int step) {
  return at::tensor({std::int64_t(rank), std::int64_t((rank + step) % 6), std::int64_t(2)}, at::kLong);
}

TEST(DataParallelOptions, SparseGradientsAreAveragedByRows) {
  for (const int ranks : {1, 2, 3}) {
    auto models = make_models<Table>(ranks, true);
    auto dense = make_models<Table>(ranks, false);
    expect_ok(test::run_threads(ranks, [&](Group& world) {
      auto model = models[world.rank()], same = dense[world.rank()];
      DataParallel ddp(model, world, kPlain);
      DataParallel reference(same, world, kPlain);
      {
        const at::NoGradGuard no_grad;
        for (std::size_t i = 0; i < model->parameters().size(); ++i)
          same->parameters()[i].copy_(model->parameters()[i]);
      }
      check(ddp.stats().sparse == std::vector<std::string>{"rows.weight"}, "found by its module");
      for (int step = 0; step < 3; ++step) {
        ddp.zero_grad();
        reference.zero_grad();
        ddp.forward(rows_of(world.rank(), step)).backward();
        reference.forward(rows_of(world.rank(), step)).backward();
        ddp.finish();
        reference.finish();
        const auto gradient = model->rows->weight.grad();
        check(gradient.is_sparse() && gradient.is_coalesced(), "still sparse");
        check(at::allclose(gradient.to_dense(), same->rows->weight.grad()), "rows, step ", step);
        check(at::allclose(model->out->weight.grad(), same->out->weight.grad()), "dense, step ", step);
      }
    }));
  }
}

TEST(DataParallelOptions, ARankMayHaveNoRowsOfASparseGradient) {
  run<Table>(make_models<Table>(2, true), [](Group& world, std::shared_ptr<Table> model) {
    DataParallel ddp(model, world, with_option([](auto& o) { o.find_unused_parameters = true; }));
    auto loss = model->out->forward(at::ones({1, 2})).sum();
    if (world.rank() == 1) loss = loss + model->rows->forward(at::full({1}, 4, at::kLong)).sum();
    loss.backward();
    ddp.finish();
    const auto expected = at::zeros({6, 2});
    expected[4].fill_(0.5f);
    check(at::equal(model->rows->weight.grad().to_dense(), expected), "rows");
  });
}

TEST(DataParallelOptions, ASparseGradientThatIsDividedOtherwiseNamesRankAndParameter) {
  run<Table>(make_models<Table>(2, true), [](Group& world, std::shared_ptr<Table> model) {
    DataParallel ddp(model, world, kPlain);
    ddp.forward(rows_of(0, 0)).backward();
    auto& gradient = model->rows->weight.mutable_grad();
    if (world.rank() == 1) gradient = gradient.to_dense().to_sparse(2);
    check_says(error_of([&] { ddp.finish(); }),
               "DataParallel: of the gradient of rows.weight rank 1 gave f32[6, 2] with 2 sparse dimensions to avg, "
               "but rank 0 gave f32[6, 2] with 1 sparse dimension to avg (hint: use the same operators on every rank)");
  });
}

TEST(DataParallelOptions, SparseWhereDenseWasPromisedAndTheReverseNameRankAndParameter) {
  for (const auto overlap : {Overlap::kOn, Overlap::kOff}) {
    run<Table>(make_models<Table>(2, false), [&](Group& world, std::shared_ptr<Table> model) {
      DataParallel ddp(model, world, with_option([&](auto& o) { o.overlap = overlap; }));
      const auto words = error_of([&] {
        auto loss = ddp.forward(rows_of(0, 0));
        if (world.rank() == 1)
          loss = model->out->forward(at::embedding(model->rows->weight, rows_of(0, 0), -1, false, true)).sum();
        loss.backward();
        ddp.finish();
      });
      check_says(words, "rank 1: DataParallel: the gradient of rows.weight is sparse; expected a dense one");
      check_says(words, "add the name to DataParallelOptions::sparse");
    });
  }
  run<Table>(make_models<Table>(1, false), [](Group& world, std::shared_ptr<Table> model) {
    DataParallel ddp(model, world, with_option([](auto& o) { o.sparse = {"rows.weight"}; }));
    ddp.forward(rows_of(0, 0)).backward();
    check_says(error_of([&] { ddp.finish(); }),
               "rank 0: DataParallel: the gradient of rows.weight is dense; expected a sparse one");
  });
}

TEST(DataParallelOptions, AGradientThatIsNotFiniteNamesParameterAndRankOnAll) {
  for (const auto overlap : {Overlap::kOn, Overlap::kOff}) {
    for (const std::size_t in_place : {std::size_t(0), std::size_t(1) << 20}) {
      run_branches(3, [&](Group& world, Model model) {
        DataParallel ddp(model, world, with_option([&](auto& o) {
                           o.finite_check = FiniteCheck::kThrow, o.overlap = overlap, o.in_place_bytes = in_place;
                         }));
        for (const float bad : {kNan, std::numeric_limits<float>::infinity()}) {
          ddp.zero_grad();
          ddp.forward(kOnes * (world.rank() == 1 ? bad : 1.0f)).sum().backward();
          check_says(error_of([&] { ddp.finish(); }), "the gradient of left.weight holds NaN or infinity on rank 1");
          ddp.zero_grad();
          ddp.forward(kOnes).sum().backward();
          ddp.finish();
          check(at::equal(model->left->weight.grad(), at::ones({2, 3})), "the step after it");
        }
      });
    }
  }
}

TEST(DataParallelOptions, AReportedNonFiniteGradientIsKeptUntilTheNextStep) {
  run_branches(2, [](Group& world, Model model) {
    DataParallel ddp(model, world,
                     with_option([](auto& o) { o.finite_check = FiniteCheck::kReport, o.hook = f16_compression(); }));
    ddp.forward(kOnes).mul(world.rank() == 0 ? 1.0f : 1e5f).sum().backward();  // more than f16 can hold
    ddp.finish();
    check(ddp.non_finite() && ddp.non_finite()->parameter == "left.weight" && ddp.non_finite()->rank == -1,
          "on the way");
    check(ddp.reducer().skips_step(), "the optimizer is to wait");
    ddp.zero_grad();
    ddp.forward(kOnes).sum().backward();
    ddp.finish();
    check(!ddp.non_finite(), "of an earlier step");
  });
}

TEST(DataParallelOptions, AnAverageThatOverflowsIsReported) {
  run_branches(2, [](Group& world, Model model) {
    DataParallel ddp(model, world,
                     with_option([](auto& o) { o.finite_check = FiniteCheck::kThrow, o.hook = f16_compression(); }));
    ddp.forward(kOnes).mul(1e5f).sum().backward();
    check_says(error_of([&] { ddp.finish(); }),
               "the gradient of left.weight overflowed while it was averaged, in step 1 of this DataParallel (hint: ");
  });
}

class Consumer final : public GradientConsumer {
 public:
  bool consumes_in_backward() const override { return false; }
  void consume(std::span<const ConsumedGradient>, const at::Tensor&) override {}
  void finish_step(std::span<const std::uint8_t>, double) override {}
  void join_step(int) override {}
};

TEST(DataParallelOptions, ThatDoNotGoWithAShardedOptimizerGetASentence) {
  const auto says = [](auto model, const std::function<void(DataParallelOptions&)>& change, const char* words) {
    const auto outcomes = test::run_threads(1, [&](Group& world) {
      DataParallel ddp(model, world, with_option(change));
      Consumer consumer;
      check_says(error_of([&] { ddp.reducer().attach_optimizer(consumer); }), words);
    });
    expect_ok(outcomes);
  };
  says(
      std::make_shared<Branches>(), [](auto& o) { o.hook = bf16_compression(); },
      "a sharded optimizer and a hook were both given (hint: drop one of the two");
  says(
      std::make_shared<Branches>(), [](auto& o) { o.delay_all_reduce_named_params = {"left.bias"}; },
      "a sharded optimizer and delayed parameters were both given");
  says(
      std::make_shared<Table>(true), [](auto&) {}, "a sharded optimizer and sparse gradients were both given");
}

TEST(DataParallelOptions, ABatchOfNoSamplesNamesTheRank) {
  run_branches(2, [](Group& world, Model model) {
    DataParallel ddp(model, world, kPlain);
    const auto words = error_of([&] {
      ddp.forward(at::ones({world.rank() == 0 ? 2 : 0, 3})).mean().backward();
      ddp.finish();
    });
    check_says(words, "rank 1: DataParallel: forward() was given a batch of no samples, f32[0, 3]");
    check_says(words, "the gradient of left.weight on every rank");
    check_says(words, "use join_uneven()");
  });
  run_branches(2, [](Group& world, Model model) {
    DataParallel ddp(model, world, with_option([](auto& o) { o.allow_empty_batches = true; }));
    ddp.forward(at::ones({world.rank() == 0 ? 2 : 0, 3})).sum().backward();
    ddp.finish();
    check(at::equal(model->left->weight.grad(), at::ones({2, 3})), "half of the sum");
  });
}

// Doubles gradients and keeps them to itself; gives back what `result` makes of the buffer.
class Doubling final : public CommHook {
 public:
  explicit Doubling(std::function<at::Tensor(const at::Tensor&)> result) : result_(std::move(result)) {}
  std::string name() const override { return "doubling"; }
  Finish start(const Group&, const GradientBucket& bucket) override {
    started.push_back(bucket.index);
    last = bucket.is_last;
    check(bucket.names.size() == bucket.gradients.size() && bucket.names.size() == bucket.parameters.size(), "lists");
    for (std::size_t i = 0; i < bucket.gradients.size(); ++i)
      check(at::equal(bucket.gradients[i], bucket.parameters[i].grad()), bucket.names[i], " is not its gradient");
    return [this, buffer = bucket.buffer] { return result_(buffer.mul_(2)); };
  }
  std::vector<std::size_t> started;
  bool last = false;

 private:
  std::function<at::Tensor(const at::Tensor&)> result_;
};

TEST(CommHook, GetsEachBucketInItsOrderAndGivesTheAverages) {
  for (const auto overlap : {Overlap::kOn, Overlap::kOff}) {
    run_branches(2, [&](Group& world, Model model) {
      const auto hook = std::make_shared<Doubling>([](const at::Tensor& buffer) {
        const auto result = buffer.clone();
        buffer.zero_();  // only the result counts
        return result;
      });
      DataParallel ddp(model, world, with_option([&](auto& o) {
                         o.hook = hook, o.overlap = overlap, o.first_bucket_bytes = 1, o.bucket_cap_mb = mebibytes(1);
                       }));
      for (int step = 0; step < 2; ++step) {
        ddp.zero_grad();
        ddp.forward(kOnes * float(world.rank() + 1)).sum().backward();
        ddp.finish();
        check(at::equal(model->left->weight.grad(), at::full({2, 3}, 2.0f * float(world.rank() + 1))), "doubled");
        check(hook->started == std::vector<std::size_t>{0, 1, 2, 3} && hook->last, "order");
        hook->started.clear();
      }
    });
  }
}

TEST(CommHook, ThatReturnsTheWrongShapeIsNamed) {
  const auto half = [](const at::Tensor& buffer) { return buffer.narrow(0, 0, buffer.numel() / 2).clone(); };
  const auto wide = [](const at::Tensor& buffer) { return buffer.to(at::kDouble); };
  const auto none = [](const at::Tensor&) { return at::Tensor(); };
  const std::pair<std::function<at::Tensor(const at::Tensor&)>, const char*> cases[] = {
      {half, "returned f32[32] for bucket 0, which is f32[64]"},
      {wide, "returned f64[64] for bucket 0, which is f32[64]"},
      {none, "returned an undefined tensor for bucket 0"}};
  for (const auto& [result, expected] : cases) {
    run_branches(1, [&, result = result, expected = expected](Group& world, Model model) {
      DataParallel ddp(model, world, with_option([&](auto& o) { o.hook = std::make_shared<Doubling>(result); }));
      ddp.forward(kOnes).sum().backward();
      const auto words = error_of([&] { ddp.finish(); });
      check_says(words, std::string("rank 0: DataParallel: the hook doubling ") + expected);
      check_says(words, "(the gradients of right.bias to left.weight)");
      check_says(words, "return a tensor of the size and type of bucket.buffer");
    });
  }
}

TEST(Compression, RoundsToSixteenBitsAndAveragesInThirtyTwo) {
  for (const bool half : {false, true}) {
    for (const auto overlap : {Overlap::kOn, Overlap::kOff}) {
      run_branches(3, [&](Group& world, Model model) {
        DataParallel ddp(model, world, with_option([&](auto& o) {
                           o.hook = half ? f16_compression() : bf16_compression(), o.overlap = overlap;
                         }));
        const auto x = at::tensor({0.1f, 1.0f, -3.3f}).view({1, 3}) * float(world.rank() + 1);
        for (int step = 0; step < 3; ++step) {
          ddp.zero_grad();
          ddp.forward(x).sum().backward();
          ddp.finish();
          const auto expected = at::tensor({0.2f, 2.0f, -6.6f}), found = model->left->weight.grad()[1];
          const float apart = ((found - expected) / expected).abs().max().item<float>();
          check(apart < (half ? 1e-3f : 8e-3f) && apart > 0, "off by ", apart);
          const auto type = half ? at::kHalf : at::kBFloat16;
          check(at::equal(found, found.to(type).to(at::kFloat)), "not a number of 16 bits");
        }
      });
    }
  }
}

TEST(Autocast, ComputesInBf16AndKeepsGradientsInF32) {
  run_branches(2, [](Group& world, Model model) {
    DataParallel ddp(model, world, with_option([](auto& o) { o.autocast = DType::kBF16; }));
    const auto y = model->left->forward(kOnes);
    check(y.scalar_type() == at::kFloat, "outside of forward()");
    at::Tensor inside;
    {
      const Autocast precision(DType::kBF16);
      inside = model->left->forward(kOnes);
      check(inside.scalar_type() == at::kBFloat16, "inside");
      const Autocast off(DType::kF32);
      check(model->left->forward(kOnes).scalar_type() == at::kFloat, "turned off");
    }
    check(at::allclose(inside.to(at::kFloat), y, 2e-2, 2e-2), "values");
    const auto tenths = kOnes * 0.1f;
    const auto computed = ddp.forward(tenths);
    check(!at::equal(computed, model->forward(tenths)), "forward() computed in f32");
    {
      const Autocast precision(DType::kBF16);
      check(at::equal(computed, model->forward(tenths)), "forward() computed something else");
    }
    ddp.forward(kOnes * float(world.rank() + 1)).sum().backward();
    ddp.finish();
    check(at::equal(model->left->weight.grad(), at::full({2, 3}, 1.5f)), "gradient");
    check(model->left->weight.grad().scalar_type() == at::kFloat, "its type");
  });
}

TEST(Autocast, RefusesWhatItCannotDo) {
  EXPECT_THAT(error_of([] { const Autocast precision(DType::kI32); }), testing::HasSubstr("expected bf16 or f16"));
  run_branches(1, [](Group& world, Model model) {
    const auto in_f16 = error_of([&] {
      DataParallel ddp(model, world, with_option([](auto& o) { o.autocast = DType::kF16; }));
      ddp.forward(kOnes * 3).sum().backward();
      ddp.finish();
      check(at::equal(model->left->weight.grad(), at::full({2, 3}, 3.0f)), "gradient");
    });
    check_says(in_f16, TUTTI_TORCH_AT_LEAST(2, 4) ? "no error"
                                                  : "cannot multiply f16 matrices on a CPU (hint: compute in bf16");
  });
}

}  // namespace
}  // namespace tutti
