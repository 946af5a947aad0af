// shard_linear(): ordinary layers, divided with their weights, compute what they computed whole, forward and backward,
// and a plan that cannot be meant is rejected before anything changes.
#include "tutti/parallel/tensor/shard_linear.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/optim/sgd.h>

#include <string>
#include <vector>

#include "tests/harness/error_of.h"
#include "tests/harness/ranks.h"
#include "tutti/tensor/seed.h"

namespace tutti {
namespace {

using test::check;
using test::error_of;
using testing::HasSubstr;

bool close(const at::Tensor& got, const at::Tensor& wanted) { return at::allclose(got, wanted, 1e-12, 1e-12); }

at::Tensor wave(at::IntArrayRef sizes, double phase) {
  std::int64_t count = 1;
  for (const auto size : sizes) count *= size;
  return at::sin(at::arange(count, at::kDouble) + phase).view(sizes);
}
// Weights of its own on each rank, if `phase` is: those of rank 0 have to win.
void fill(torch::nn::Module& module, double phase) {
  const at::NoGradGuard no_grad;
  module.to(at::kDouble);
  for (at::Tensor& parameter : module.parameters()) parameter.copy_(wave(parameter.sizes(), phase += 1));
}

struct MlpImpl : torch::nn::Module {
  MlpImpl() {
    up = register_module("up", Linear(6, 8));
    down = register_module("down", Linear(8, 6));
  }
  at::Tensor forward(const at::Tensor& x) { return down(at::gelu(up(x))); }
  Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(Mlp);

struct NetImpl : torch::nn::Module {
  NetImpl() {
    for (int i = 0; i < 2; ++i) layers->push_back(Mlp());
    register_module("layers", layers);
    head = register_module("head", torch::nn::Linear(6, 4));
  }
  at::Tensor forward(at::Tensor x) {
    for (const auto& layer : *layers) x = x + layer->as<Mlp>()->forward(x);
    return head(x);
  }
  torch::nn::ModuleList layers;
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Net);

TEST(ShardLinear, IsTorchsUntilItIsDivided) {
  torch::manual_seed(5);
  const torch::nn::Linear theirs(torch::nn::LinearOptions(6, 4));
  torch::manual_seed(5);
  Linear ours(6, 4);
  EXPECT_TRUE(at::equal(ours->weight, theirs->weight));
  EXPECT_TRUE(at::equal(ours->bias, theirs->bias));
  const at::Tensor x = at::rand({3, 6});
  EXPECT_TRUE(at::equal(ours(x), torch::nn::Linear(theirs)(x)));
  Linear without(torch::nn::LinearOptions(6, 4).bias(false));
  EXPECT_EQ(without->parameters().size(), 1u);
  EXPECT_EQ(without(x).size(-1), 4);
  const auto copy = std::dynamic_pointer_cast<LinearImpl>(ours->clone());
  EXPECT_TRUE(at::equal(copy->weight, ours->weight));
  EXPECT_FALSE(copy->weight.is_same(ours->weight));
}

TEST(ShardLinear, APlanDividesAWholeModuleAndItsResultsStay) {
  for (const int ranks : {1, 2, 4}) {
    const auto outcomes = test::run_threads(ranks, [](Group& tp) {
      Net whole, net;
      fill(*whole, 0);
      fill(*net, 10 * tp.rank());
      torch::optim::SGD optimizer(net->parameters(), 0.1), of_whole(whole->parameters(), 0.1);
      shard_linears(*net, tp, {{"layers.*.up", ShardColumns()}, {"layers.*.down", ShardRows()}});
      check(net->layers->ptr<MlpImpl>(1)->down->weight.size(1) == 8 / tp.size(), "size of a part");
      {
        const at::NoGradGuard no_grad;  // not in the plan
        net->head->weight.copy_(whole->head->weight);
        net->head->bias.copy_(whole->head->bias);
      }
      for (int step = 0; step < 3; ++step) {
        const at::Tensor x = wave({3, 2, 6}, step);
        optimizer.zero_grad();
        of_whole.zero_grad();
        const at::Tensor got = net(x), wanted = whole(x);
        check(close(got, wanted), "output");
        torch::autograd::backward({got.square().mean()}, {});
        torch::autograd::backward({wanted.square().mean()}, {});
        optimizer.step();
        of_whole.step();
      }
      const auto placed = placed_parameters(*net);
      const auto all = whole->named_parameters();
      for (const PlacedParameter& part : placed) {
        const at::Tensor& expected = all[part.name];
        check(close(part.tensor, part.layout.part_of(expected)), part.name);
        check(close(part.tensor.grad(), part.layout.part_of(expected.grad())), part.name, ", the gradient");
      }
    });
    EXPECT_EQ(test::describe(outcomes), "");
  }
}

TEST(ShardLinear, BlocksGatheredOutputsAndWholeInputs) {
  const auto outcomes = test::run_threads(2, [](Group& tp) {
    torch::nn::Linear qkv(5, 12), out(6, 3);
    fill(*qkv, 0);
    fill(*out, 5);
    const at::Tensor x = wave({4, 5}, 1), z = wave({4, 6}, 2);
    Linear gathered = shard_linear(qkv, tp, ShardColumns{.blocks = {6, 4, 2}, .gather_output = true});
    check(close(gathered(x), qkv(x)), "gathered");
    Linear mine = shard_linear(qkv, tp, ShardColumns{.blocks = {6, 4, 2}});
    check(mine(x).size(-1) == 6, "a part");
    Linear rows = shard_linear(out, tp, ShardRows{.input_is_parallel = false});
    check(close(rows(z), out(z)), "whole input");
    Linear ends = shard_linear(out, tp, ShardRows{.sequence_parallel = true});
    check(close(ends(z.narrow(1, 3 * tp.rank(), 3)), out(z).narrow(0, 2 * tp.rank(), 2)), "rows of a sequence");
    check(ends->layout_of("bias").partial_gradient, "the bias's gradient is partial");
    check(out->weight.size(1) == 6, "the given layer stays whole");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(ShardLinear, LayersOfASequentialAreReplaced) {
  const auto outcomes = test::run_threads(2, [](Group& tp) {
    torch::nn::Sequential net(torch::nn::Linear(6, 8), torch::nn::ReLU(), torch::nn::Linear(8, 4));
    fill(*net, 0);
    const at::Tensor x = wave({3, 6}, 0), wanted = net->forward(x);
    shard_linears(*net, tp, {{"0", ShardColumns()}, {"2", ShardRows()}});
    check(close(net->forward(x), wanted), "output");
    check(net->parameters().front().size(0) == 4, "registered");
    check(net->ptr<LinearImpl>(2)->is_sharded(), "held");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(ShardLinear, WhatAPlanCannotMeanIsRejectedBeforeAnythingChanges) {
  Net net;
  const auto says = [&](const LinearPlan& plan) { return error_of([&] { shard_linears(*net, Group{}, plan); }); };
  EXPECT_THAT(says({{"layers.0.up", ShardColumns()}, {"layers.0.dwon", ShardRows()}}),
              HasSubstr("shard_linears: no module is named \"layers.0.dwon\" (hint: did you mean layers.0.down?)"));
  EXPECT_THAT(says({{"layers.*.up", ShardColumns()}, {"layers.1.up", ShardRows()}}),
              HasSubstr("\"layers.*.up\" and \"layers.1.up\" both name layers.1.up"));
  EXPECT_THAT(says({{"layers.0", ShardColumns()}}), HasSubstr("layers.0 is a "));
  EXPECT_THAT(says({{"head", ShardColumns()}}), HasSubstr("(hint: declare it as tutti::Linear"));
  EXPECT_FALSE(net->layers->ptr<MlpImpl>(0)->up->is_sharded());
  const LinearPlan plan = {{"layers.0.up", ShardColumns()}};
  shard_linears(*net, Group{}, plan);
  EXPECT_THAT(says(plan), HasSubstr("layers.0.up has been divided before"));
  EXPECT_THAT(error_of([&] { net->layers->ptr<MlpImpl>(0)->up->clone(); }), HasSubstr("expected one that is whole"));
  EXPECT_THAT(error_of([] {
                shard_linear(torch::nn::Linear(2, 2), Group{},
                             ShardRows{.input_is_parallel = false, .sequence_parallel = true});
              }),
              HasSubstr("expected an input that is divided by features"));
  const auto outcomes = test::run_threads(3, [](Group& tp) {
    const std::string said = error_of([&] { shard_linear(torch::nn::Linear(6, 8), tp, ShardColumns()); });
    check(said.find("8 output features cannot be divided equally among 3 ranks (hint: 6 or 9 can)") != said.npos, said);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
