// FullySharded with a ShardedOptimizer equals DataParallel with an Optimizer: to the bit where the ranks share a host,
// with one copy of the weights for all of them or gathered block by block; and each rank keeps its part.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cmath>
#include <limits>
#include <ostream>

#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/tensor/compute.h"

namespace tutti {
namespace {

constexpr int kSteps = 4;
constexpr std::int64_t kBatch = 6;  // of a rank

struct Case {
  const char* name;
  int ranks;
  FullyShardedOptions sharding = {};
  UpdateRule rule = AdamOptions{.lr = 0.02};
  at::ScalarType type = at::kFloat;
  bool frozen = false;  // a layer in the middle of a block
  double max_norm = 0;  // 0: not clipped
  test::WorldOptions world = {};
  double tolerance = 0;
  std::vector<ParameterGroup> groups = {};
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class Pair : public torch::nn::Module {
 public:
  Pair()
      : in(register_module("in", torch::nn::Linear(301, 301))),
        out(register_module("out", torch::nn::Linear(301, 97))) {}
  at::Tensor forward(at::Tensor x) { return out->forward(at::tanh(in->forward(x))); }
  torch::nn::Linear in, out;
};

// A block of two layers, one without parameters, and three that are one layer each.
torch::nn::Sequential make_net(at::ScalarType type, bool frozen = false) {
  at::manual_seed(11);
  const auto pair = std::make_shared<Pair>();
  torch::nn::Sequential net(torch::nn::Linear(97, 301), torch::nn::Tanh(), pair, torch::nn::Linear(97, 31),
                            torch::nn::Linear(31, 3));
  net->to(type);
  pair->in->weight.set_requires_grad(!frozen);
  return net;
}

// Of a rank in a step.
at::Tensor batch(const Group& world, int step, at::ScalarType type) {
  auto generator = at::detail::createCPUGenerator(std::uint64_t(world.rank() + 1 + step * 100));
  return at::randn({kBatch, 97}, generator, at::kDouble).to(type);
}

class FullyShardedParity : public testing::TestWithParam<Case> {};

TEST_P(FullyShardedParity, EqualsDataParallel) {
  const auto& param = GetParam();
  const auto outcomes = test::run_processes(
      param.ranks,
      [&](Group& world) {
        fix_compute_threads(1);
        auto plain = make_net(param.type, param.frozen), sharded = make_net(param.type, param.frozen);
        if (world.rank() > 0)  // rank 0's weights count
          for (auto& parameter : sharded->parameters()) parameter.detach().zero_();
        std::size_t plain_bytes = 0;
        std::vector<StatePart> plain_state;
        {
          DataParallel ddp(plain.ptr(), world, {.in_place_bytes = 4096});
          Optimizer optimizer(*plain, param.rule, param.groups);
          for (int k = 0; k < kSteps; ++k) {
            ddp.forward(batch(world, k, param.type)).square().mean().backward();
            ddp.finish();
            if (param.max_norm > 0) optimizer.clip_grad_norm(param.max_norm);
            optimizer.step();
            optimizer.zero_grad();
          }
          plain_bytes = optimizer.state_bytes();
          plain_state = optimizer.own_state();
        }
        FullySharded model(sharded, world, param.sharding);
        ShardedOptimizer optimizer(model, param.rule, param.groups);
        for (int k = 0; k < kSteps; ++k) {
          model.forward(batch(world, k, param.type)).square().mean().backward();
          if (param.max_norm > 0) optimizer.clip_grad_norm(param.max_norm);
          optimizer.step();
          optimizer.zero_grad();
          const at::NoGradGuard no_grad;
          (void)model.forward(batch(world, k, param.type));  // an evaluation in between
        }
        const auto near = [&](const at::Tensor& found, const at::Tensor& expected, const std::string& name) {
          const double apart = (found - expected).abs().max().item<double>();
          test::check(apart <= param.tolerance, name, " differs by ", apart * 1e12, "e-12");
        };
        {
          const auto whole = model.whole();
          const auto found = sharded->named_parameters(), expected = plain->named_parameters();
          for (const auto& item : expected) near(found[item.key()], item.value(), item.key());
        }
        const auto state = optimizer.full_state();
        test::check(state.size() == plain_state.size(), "states ", state.size(), " and ", plain_state.size());
        for (std::size_t k = 0; k < state.size(); ++k) {
          test::check(state[k].parameter == plain_state[k].parameter, state[k].parameter, " ",
                      plain_state[k].parameter);
          near(state[k].values, plain_state[k].values, state[k].state + " of " + state[k].parameter);
        }
        const auto ranks = std::size_t(world.size());
        const std::size_t gaps = 20 * 64 * 2;
        test::check(param.frozen || optimizer.state_bytes() <= plain_bytes / ranks + gaps, "state ",
                    optimizer.state_bytes());
        std::size_t weights = 0;
        for (const auto& parameter : plain->parameters()) weights += parameter.nbytes();
        std::size_t kept = model.weight_bytes();
        test::check(model.shared() == (param.sharding.share_on_host && ranks > 1 && param.world.transport != "tcp"),
                    "shared ", model.shared());
        if (model.shared()) {  // whole blocks, dealt out to ranks
          kept = std::size_t(all_reduce(world, std::int64_t(kept)));
          test::check(kept <= weights + 5 * ranks * 64 * 4, "all ranks keep ", kept, " of ", weights);
        } else {
          test::check(kept <= weights / ranks + 5 * 64 * 4, "weights ", kept, " of ", weights);
        }
      },
      param.world);
  EXPECT_EQ(test::describe(outcomes), "");
}

const FullyShardedOptions kGathered = {.share_on_host = false}, kNoPrefetch = {.prefetch = 0, .share_on_host = false},
                          kFarPrefetch = {.prefetch = 9, .share_on_host = false};
const SgdOptions kMomentum = {.lr = 0.1, .momentum = 0.9};
const std::vector<ParameterGroup> kGroups = {
    {.names = {"0.bias", "2.out.bias"}, .rule = AdamOptions{.lr = 0.1}},
    {.names = {"2.in.weight"}, .rule = AdamOptions{.lr = 0, .weight_decay = 1}}};

INSTANTIATE_TEST_SUITE_P(
    , FullyShardedParity,
    testing::Values(Case{"alone", 1}, Case{"two", 2}, Case{"three", 3, {}, kMomentum, at::kDouble},
                    Case{"gathered", 2, kGathered},
                    Case{"groups", 2, kGathered, AdamOptions{}, at::kFloat, false, 0, {}, 0, kGroups},
                    Case{"gathered_by_three", 3, kGathered, AdamWOptions{}, at::kDouble},
                    Case{"no_prefetch", 2, kNoPrefetch}, Case{"far_prefetch", 3, kFarPrefetch},
                    Case{"frozen", 2, {}, kMomentum, at::kFloat, true},
                    Case{"frozen_gathered", 2, kGathered, kMomentum, at::kFloat, true},
                    Case{"clipped", 3, {}, kMomentum, at::kFloat, false, 0.05},
                    Case{"clipped_gathered", 2, kGathered, AdamOptions{}, at::kFloat, false, 0.05},
                    Case{"over_links", 3, {}, kMomentum, at::kDouble, false, 0, {.transport = "tcp"}, 1e-13}),
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
}  // namespace tutti
