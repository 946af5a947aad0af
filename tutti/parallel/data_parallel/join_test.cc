#include "tutti/parallel/data_parallel/join.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/batchnorm.h>

#include <limits>

#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/test_models.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

using test::Branches;
using test::check;
using test::check_says;
using test::error_of;
using test::kPlain;
using test::make_models;

// Batch k of rank r; all ones, times a factor.
at::Tensor batch(int rank, int k) { return at::ones({2, 3}) * float(1 + rank + 10 * k); }

void one_step(DataParallel<Branches>& ddp, Sgd& optimizer, const at::Tensor& x) {
  ddp.zero_grad();
  ddp.forward(x).mean().backward();
  ddp.finish();
  optimizer.step();
}

struct Run {
  DataParallelOptions options = kPlain;
  JoinUnevenOptions join = {};
};

// What one process gets that has the batches of all ranks: each step the mean over `divisor(active)` ranks.
std::vector<at::Tensor> alone(const Branches& start, const std::vector<int>& batches, bool by_active) {
  Branches model;
  {
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < model.parameters().size(); ++i) model.parameters()[i].copy_(start.parameters()[i]);
  }
  Sgd optimizer(model.parameters(), {.lr = 0.01, .momentum = 0.9});
  for (int k = 0; k < *std::max_element(batches.begin(), batches.end()); ++k) {
    int active = 0;
    at::Tensor loss = at::zeros({});
    for (int rank = 0; rank < int(batches.size()); ++rank) {
      if (k >= batches[std::size_t(rank)]) continue;
      ++active;
      loss = loss + model.forward(batch(rank, k)).mean();
    }
    optimizer.zero_grad();
    (loss / (by_active ? active : int(batches.size()))).backward();
    optimizer.step();
  }
  return model.parameters();
}

void expect_the_same_as_alone(const std::vector<int>& batches, const Run& run) {
  auto models = make_models<Branches>(int(batches.size()));
  const auto expected = alone(*models[0], batches, !run.join.divide_by_initial_world_size);
  const auto outcomes = test::run_threads(int(batches.size()), [&](Group& world) {
    const auto model = models[std::size_t(world.rank())];
    DataParallel ddp(model, world, run.options);
    Sgd optimizer(model->parameters(), {.lr = 0.01, .momentum = 0.9});
    join_uneven(
        ddp,
        [&] {
          for (int k = 0; k < batches[std::size_t(world.rank())]; ++k) one_step(ddp, optimizer, batch(world.rank(), k));
        },
        run.join);
    for (std::size_t i = 0; i < expected.size(); ++i)
      check(at::allclose(model->parameters()[i], expected[i], 1e-5, 1e-6), "parameter ", i, " of rank ", world.rank());
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

DataParallelOptions with(const std::function<void(DataParallelOptions&)>& change) {
  auto options = kPlain;
  change(options);
  return options;
}

TEST(JoinUneven, UnevenBatchesEqualOneProcess) {
  for (const bool by_initial : {true, false}) {
    const JoinUnevenOptions options{.divide_by_initial_world_size = by_initial};
    for (const std::vector<int>& batches : {std::vector{3, 1}, {1, 4}, {2, 5, 3}, {0, 2}, {3, 3}, {2}})
      expect_the_same_as_alone(batches, {kPlain, options});
  }
}

TEST(JoinUneven, GoesWithTheOtherOptions) {
  const std::vector<int> batches = {1, 4, 2};
  const auto views = with([](auto& o) { o.gradient_as_bucket_view = true; });
  const auto overlapped =
      with([](auto& o) { o.overlap = Overlap::kOn, o.first_bucket_bytes = 1, o.bucket_cap_mb = mebibytes(1); });
  const auto in_place = with([](auto& o) { o.in_place_bytes = 0; });
  const auto unused = with([](auto& o) { o.find_unused_parameters = true; });
  const auto fixed = with([](auto& o) { o.static_graph = true; });
  const auto checked = with([](auto& o) { o.finite_check = FiniteCheck::kThrow; });
  for (const auto& options : {views, overlapped, in_place, unused, fixed, checked})
    for (const bool by_initial : {true, false}) expect_the_same_as_alone(batches, {options, {by_initial}});
  expect_the_same_as_alone({0, 2, 1}, {fixed, {}});  // the first has seen no step, and learns the graph from others
}

class JoinNormed : public torch::nn::Module {
 public:
  JoinNormed() : norm(register_module("norm", torch::nn::BatchNorm1d(3))) {}
  at::Tensor forward(const at::Tensor& x) { return norm->forward(x); }
  torch::nn::BatchNorm1d norm;
};

TEST(JoinUneven, BuffersComeFromTheHighestRankThatHasData) {
  auto models = make_models<JoinNormed>(3);
  const auto outcomes = test::run_threads(3, [&](Group& world) {
    const auto model = models[std::size_t(world.rank())];
    DataParallel ddp(model, world, kPlain);
    join_uneven(ddp, [&] {
      for (int k = 0; k < 1 + world.rank(); ++k) {
        ddp.zero_grad();
        ddp.forward(at::arange(12, at::kFloat).view({4, 3}) + float(world.rank())).sum().backward();
        ddp.finish();
      }
    });
    auto most = model->norm->running_mean.clone(), least = most.clone();
    all_reduce(world, most, ReduceOp::kMax);
    all_reduce(world, least, ReduceOp::kMin);
    check(at::equal(most, least), "the ranks' running means differ");
    // Of rank 2, which had most steps and led in all.
    const double mean = 6.5 * (1 - 0.9 * 0.9 * 0.9);
    check(std::abs(most[0].item<double>() - mean) < 1e-5, "mean ", most[0].item<double>(), " expected ", mean);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(JoinUneven, CanEndAllWithTheFirst) {
  auto models = make_models<Branches>(3);
  const auto outcomes = test::run_threads(3, [&](Group& world) {
    const auto model = models[std::size_t(world.rank())];
    DataParallel ddp(model, world, kPlain);
    Sgd optimizer(model->parameters(), {.lr = 0.01});
    int steps = 0;
    const auto words = error_of([&] {
      join_uneven(ddp,
                  [&] {
                    for (int k = 0; k < (world.rank() == 1 ? 2 : 5); ++k, ++steps)
                      one_step(ddp, optimizer, batch(world.rank(), k));
                  },
                  {.throw_on_early_end = true});
    });
    check_says(words, "rank 1 ran out of data while others have some (hint: give every rank the same number");
    check(steps == 2, "steps ", steps);
    one_step(ddp, optimizer, batch(0, 0));  // all go on without it
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// Who has run out does not know what the others make of it, and waits for their next step.
TEST(JoinUneven, AGradientThatIsNotFiniteEndsNobodysShadow) {
  auto models = make_models<Branches>(3);
  const auto outcomes = test::run_threads(3, [&](Group& world) {
    const auto model = models[std::size_t(world.rank())];
    DataParallel ddp(model, world, with([](auto& o) { o.finite_check = FiniteCheck::kThrow; }));
    Sgd optimizer(model->parameters(), {.lr = 0.01});
    int skipped = 0;
    join_uneven(ddp, [&] {
      for (int k = 0; k < 1 + 2 * world.rank(); ++k) {
        const bool bad = k == 2 && world.rank() == 2;
        const auto words = error_of([&] {
          one_step(ddp, optimizer, bad ? at::full({2, 3}, std::numeric_limits<float>::infinity()) : batch(0, k));
        });
        skipped += words != "no error";
        if (k == 2) check_says(words, "holds NaN or infinity on rank 2");
      }
    });
    check(skipped == (world.rank() > 0), skipped, " steps were left out");
    for (const auto& parameter : model->parameters()) check(parameter.isfinite().all().item<bool>(), "finite");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(JoinUneven, InsideAnotherGetsASentence) {
  auto models = make_models<Branches>(1);
  const auto outcomes = test::run_threads(1, [&](Group& world) {
    DataParallel ddp(models[0], world, kPlain);
    check_says(error_of([&] { join_uneven(ddp, [&] { join_uneven(ddp, [] {}); }); }), "a second join_uneven() began");
    join_uneven(ddp, [] {});
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(JoinUneven, AnErrorOfTheLoopComesOutAndEndsIt) {
  auto models = make_models<Branches>(1);
  const auto outcomes = test::run_threads(1, [&](Group& world) {
    DataParallel ddp(models[0], world, kPlain);
    check_says(error_of([&] { join_uneven(ddp, [] { throw std::runtime_error("the file ended early"); }); }),
               "the file ended early");
    join_uneven(ddp, [] {});
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
