// Ranks with different numbers of batches and a sharded optimizer: who has run out still steps its part of the weights,
// by what the others do. The same bits as with an optimizer on every rank.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/join.h"
#include "tutti/parallel/data_parallel/precision/loss_scaler.h"
#include "tutti/parallel/data_parallel/test_models.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"

namespace tutti {
namespace {

using test::Branches;
using test::check;
using test::check_says;
using test::error_of;

constexpr std::int64_t kWidth = 301;

at::Tensor join_batch(int rank, int k) {
  return at::arange(2 * kWidth, at::kFloat).view({2, kWidth}).add(rank + 10 * k);
}

struct JoinCase {
  std::vector<int> batches;  // of each rank
  int stage = 1;
  bool by_initial = true;
  DataParallelOptions parallel = {.in_place_bytes = 2048};
};

// A loop that clips in odd steps, changes the rate, and leaves every fourth step out.
template <class Optimizer, class Finish>
void train(const Group& world, DataParallel<Branches>& ddp, Optimizer& optimizer, const JoinCase& param,
           const Finish& finish) {
  const auto loop = [&] {
    for (int k = 0; k < param.batches[std::size_t(world.rank())]; ++k) {
      ddp.forward(join_batch(world.rank(), k) / 100).square().mean().backward();
      finish();
      optimizer.set_lr(0.01 / (k + 1));
      if (k % 2 == 1) optimizer.clip_grad_norm(0.1);
      if (k % 3 == 1) optimizer.clip_grad_value(0.01);
      if (k % 4 != 3) optimizer.step();
      optimizer.zero_grad();
    }
  };
  join_uneven(ddp, loop, {.divide_by_initial_world_size = param.by_initial});
}

void expect_the_same_bits(const JoinCase& param) {
  const int ranks = int(param.batches.size());
  at::manual_seed(3);
  const auto plain = test::make_models<Branches>(ranks, kWidth), sharded = test::make_models<Branches>(ranks, kWidth);
  for (std::size_t i = 0; i < plain[0]->parameters().size(); ++i)
    sharded[0]->parameters()[i].detach().copy_(plain[0]->parameters()[i].detach());
  const auto outcomes = test::run_threads(ranks, [&](Group& world) {
    const auto rank = std::size_t(world.rank());
    {
      DataParallel ddp(plain[rank], world, param.parallel);
      Optimizer optimizer(*plain[rank], AdamOptions{});
      train(world, ddp, optimizer, param, [&] { ddp.finish(); });
    }
    DataParallel ddp(sharded[rank], world, param.parallel);
    ShardedOptimizer optimizer(ddp, AdamOptions{}, {.stage = param.stage});
    train(world, ddp, optimizer, param, [] {});
    for (std::size_t i = 0; i < plain[rank]->parameters().size(); ++i)
      check(at::equal(plain[rank]->parameters()[i], sharded[rank]->parameters()[i]), "parameter ", i);
    // Everybody's part of the state is as far as the others'.
    for (const auto& part : optimizer.own_state()) {
      if (part.state != "step") continue;
      const auto steps = part.values.item<std::int64_t>();
      check(all_reduce(world, steps, ReduceOp::kMax) == steps, part.parameter, " made ", steps, " steps");
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(JoinUnevenSharded, HasTheBitsOfAnOptimizerOnEveryRank) {
  at::set_num_threads(1);
  for (const int stage : {1, 2})
    for (const std::vector<int>& batches : {std::vector{3, 1}, {1, 6}, {2, 5, 3}, {0, 2}, {3, 3}, {2}})
      expect_the_same_bits({.batches = batches, .stage = stage});
}

TEST(JoinUnevenSharded, GoesWithTheOtherOptions) {
  at::set_num_threads(1);
  for (const int stage : {1, 2}) {
    JoinCase unused{.batches = {1, 4, 2}, .stage = stage}, fixed = unused, overlapped = unused, views = unused;
    unused.parallel.find_unused_parameters = true;
    fixed.parallel.static_graph = true;
    overlapped.parallel.overlap = Overlap::kOn;
    views.parallel.gradient_as_bucket_view = true;
    for (const auto& param : {unused, fixed, overlapped, views}) expect_the_same_bits(param);
  }
}

// Of four ranks two run out: the mean over the others is half of what is there times two, exactly.
TEST(JoinUnevenSharded, TheMeanMayBeOverThoseWithData) {
  at::set_num_threads(1);
  for (const int stage : {1, 2}) expect_the_same_bits({.batches = {3, 1, 3, 1}, .stage = stage, .by_initial = false});
}

TEST(JoinUnevenSharded, AScaleOfTheLossStaysTheSameOnAllRanks) {
  auto models = test::make_models<Branches>(3);
  for (const bool is_sharded : {false, true}) {
    const auto outcomes = test::run_threads(3, [&](Group& world) {
      const auto model = models[std::size_t(world.rank())];
      DataParallel ddp(model, world, {.finite_check = FiniteCheck::kReport});
      LossScaler scaler(ddp, {.initial_scale = 8, .growth_interval = 2});
      Sgd whole(*model, {.lr = 0.01});
      std::optional<ShardedOptimizer> sharded;
      if (is_sharded) sharded.emplace(ddp, SgdOptions{.lr = 0.01});
      join_uneven(ddp, [&] {
        for (int k = 0; k < 1 + 2 * world.rank(); ++k) {
          ddp.zero_grad();
          scaler.scale(ddp.forward(at::ones({1, 3})).sum()).backward();
          if (!sharded) ddp.finish();
          sharded ? scaler.step(*sharded) : scaler.step(whole);
          scaler.update();
        }
      });
      check(scaler.scale() == 32 && scaler.state().good_steps == 1, "after five steps the scale is ", scaler.scale());
    });
    EXPECT_EQ(test::describe(outcomes), "");
  }
}

TEST(ShardedOptimizer, RulesThatDifferBetweenRanksAreShown) {
  auto models = test::make_models<Branches>(2);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    DataParallel ddp(models[std::size_t(world.rank())], world, test::kPlain);
    const double mine = world.rank() == 0 ? 0.1 : 0.2;
    check_says(error_of([&] { ShardedOptimizer(ddp, SgdOptions{.lr = mine}); }),
               "the ranks gave ShardedOptimizer different options: parameter group 0 is Sgd, lr 0.1, momentum 0, weight "
               "decay 0, nesterov false, dampening 0 on rank 0, but Sgd, lr 0.2");
    check_says(error_of([&] { ShardedOptimizer(ddp, SgdOptions{}, {.stage = 1 + world.rank()}); }),
               "stage is 1 on rank 0, but 2 on rank 1");
    ShardedOptimizer(ddp, SgdOptions{});
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
