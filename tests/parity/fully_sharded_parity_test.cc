// FullySharded with a ShardedOptimizer equals DataParallel with an Optimizer: to the bit where the ranks share a host,
// with one copy of the weights for all of them or gathered block by block; and each rank keeps its part.
#include <gmock/gmock.h>

#include <limits>

#include "tests/parity/fully_sharded_cases.h"

namespace tutti::parity {
namespace {

class FullyShardedParity : public testing::TestWithParam<Case> {};

TEST_P(FullyShardedParity, EqualsDataParallel) {
  const Case& param = GetParam();
  const auto outcomes = test::run_processes(
      param.ranks, [&](Group& world) { check_equals_data_parallel(world, param); }, param.world);
  EXPECT_EQ(test::describe(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(, FullyShardedParity, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Two branches of which a rank may use one: blocks are complete in another order on each rank.
class Branches : public torch::nn::Module {
 public:
  Branches()
      : first(register_module("first", torch::nn::Linear(5, 7))),
        left(register_module("left", torch::nn::Linear(7, 2))),
        right(register_module("right", torch::nn::Linear(7, 2))),
        never(register_module("never", torch::nn::Linear(7, 2))) {}
  at::Tensor forward(const at::Tensor& x, bool use_left, bool use_right) {
    const auto h = at::tanh(run_block(first, x));
    const auto a = run_block(left, h), b = run_block(right, h);
    (void)run_block(never, h);
    auto out = at::zeros_like(a);
    if (use_left) out = out + a;
    if (use_right) out = out + b;
    return out;
  }
  torch::nn::Linear first, left, right, never;
};

class WhereWeightsAre : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(, WhereWeightsAre, testing::Values("shared", "gathered", "tcp"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(WhereWeightsAre, RanksThatUseDifferentBlocksAverageWithZeros) {
  const std::string where = GetParam();
  const auto outcomes = test::run_processes(
      2,
      [&](Group& world) {
        fix_compute_threads(1);
        at::manual_seed(4);
        const auto net = std::make_shared<Branches>();
        net->to(at::kDouble);
        const auto before = net->left->bias.detach().clone(), never = net->never->weight.detach().clone();
        FullySharded sharded(net, world, {.blocks = {"*"}, .share_on_host = where == "shared"});
        ShardedOptimizer optimizer(sharded, SgdOptions{.lr = 1, .weight_decay = 0.5});
        // Two backward passes make one step.
        for (int pass = 0; pass < 2; ++pass)
          sharded.forward(at::ones({3, 5}, at::kDouble), world.rank() == 0, world.rank() == 1).sum().backward();
        optimizer.step();
        const auto whole = sharded.whole();
        // Each rank's branch has a gradient of 3 for each pass, the other's 0; the average is 1.5 for each.
        test::check(at::allclose(net->left->bias, before - 3 - 0.5 * before), "left");
        test::check(at::equal(net->never->weight, never), "stepped what nobody used");
      },
      {.transport = where == "tcp" ? "tcp" : ""});
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST_P(WhereWeightsAre, WhatIsWrittenToTheWholeStaysAndANaNIsNamedAndNotStepped) {
  const std::string where = GetParam();
  const auto outcomes = test::run_processes(
      2,
      [&](Group& world) {
        fix_compute_threads(1);
        auto net = make_net(at::kFloat);
        const auto parameters = net->named_parameters();
        FullySharded sharded(net, world, {.share_on_host = where == "shared"});
        ShardedOptimizer optimizer(sharded, AdamOptions{});
        {
          const auto whole = sharded.whole();
          for (const auto& item : parameters) item.value().detach().fill_(0.01);
        }
        const auto out = sharded.forward(at::ones({1, 97}));
        test::check(out.std().item<float>() < 1e-5 && out[0][0].item<float>() != 0, "weights are not what was written");
        auto bias = parameters["3.bias"];
        const auto hook = bias.register_hook(
            [&](const at::Tensor& g) { return world.rank() == 1 ? g * std::numeric_limits<float>::infinity() : g; });
        sharded.forward(at::ones({1, 97})).square().mean().backward();
        const auto norm = optimizer.clip_grad_norm(1);
        test::check(norm.non_finite == "the gradient of 3.bias has a NaN or an infinity on rank 1", norm.non_finite);
        optimizer.zero_grad();
        const auto weight_sum = [&] {
          const auto whole = sharded.whole();
          double sum = 0;
          for (const auto& item : parameters) sum += item.value().detach().to(at::kDouble).sum().item<double>();
          return sum;
        };
        const double before = weight_sum();
        sharded.forward(at::ones({1, 97})).square().mean().backward();
        std::string refusal;
        try {
          optimizer.step();
        } catch (const Exception& refused) {
          refusal = refused.error().detail;
        }
        test::check(refusal ==
                        "FullySharded: the gradient of 3.bias has a NaN or an infinity on rank 1, in step 2; the "
                        "weights are as they were",
                    "step() of a NaN: ", refusal);
        test::check(weight_sum() == before, "step() of a NaN changed weights");
        bias.remove_hook(hook);
        sharded.forward(at::ones({1, 97})).square().mean().backward();
        test::check(optimizer.clip_grad_norm(1).finite(), "still not finite");
        optimizer.step();
      },
      {.transport = where == "tcp" ? "tcp" : ""});
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti::parity
