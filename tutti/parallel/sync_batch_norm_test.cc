// Batches that ranks normalise together equal one batch that one process normalises: in float64 to 1e-12.
#include "tutti/parallel/sync_batch_norm.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>

#include "tests/harness/ranks.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/data_parallel/test_models.h"

namespace tutti {
namespace {

using test::check;
using test::check_says;
using test::error_of;
using test::kPlain;

// BatchNorm as a typed member, in a Sequential, with and without weights.
class Net : public torch::nn::Module {
 public:
  Net()
      : conv(register_module("conv", torch::nn::Conv2d(2, 3, 3))),
        first(register_module("first", torch::nn::BatchNorm2d(3))),
        rest(register_module(
            "rest", torch::nn::Sequential(torch::nn::Linear(27, 5),
                                          torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(5).affine(false)),
                                          torch::nn::Linear(5, 2)))) {}
  at::Tensor forward(const at::Tensor& x) {
    return rest->forward(at::flatten(at::relu(first->forward(conv->forward(x))), 1));
  }
  torch::nn::Conv2d conv;
  torch::nn::BatchNorm2d first;
  torch::nn::Sequential rest;
};

std::vector<std::shared_ptr<Net>> make_nets(int count) {
  auto nets = test::make_models<Net>(count);
  for (const auto& net : nets) {
    net->to(at::kDouble);
    const at::NoGradGuard no_grad;
    for (std::size_t i = 0; i < net->parameters().size(); ++i) net->parameters()[i].copy_(nets[0]->parameters()[i]);
  }
  return nets;
}

at::Tensor batch(int step, std::int64_t rows) {
  auto generator = at::detail::createCPUGenerator(std::uint64_t(step));
  return at::randn({rows, 2, 5, 5}, generator, at::kDouble) * 3 + 1;
}

TEST(SyncBatchNorm, RanksEqualOneProcess) {
  for (const int ranks : {1, 2, 3}) {
    auto nets = make_nets(ranks + 1);
    const auto alone = nets.back();
    constexpr std::int64_t kRows = 12;
    const auto loss_of = [](const at::Tensor& y) { return (y.square().sum(1) - y.select(1, 0)).mean(); };
    std::vector<at::Tensor> gradients;
    for (int step = 0; step < 2; ++step) {
      alone->zero_grad();
      loss_of(alone->forward(batch(step, kRows))).backward();
    }
    const auto outcomes = test::run_threads(ranks, [&](Group& world) {
      const auto net = nets[std::size_t(world.rank())];
      const auto synced = sync_batch_norms(net, world);
      check(synced.names() == std::vector<std::string>{"first", "rest.1"}, "names");
      auto options = kPlain;
      options.broadcast_buffers = false;
      DataParallel ddp(net, world, options);
      const auto mine = kRows / world.size();
      for (int step = 0; step < 2; ++step) {
        ddp.zero_grad();
        loss_of(ddp.forward(batch(step, kRows).narrow(0, mine * world.rank(), mine))).backward();
        ddp.finish();
      }
      for (const auto& item : alone->named_parameters()) {
        const auto found = net->named_parameters()[item.key()].grad();
        check(at::allclose(found, item.value().grad(), 1e-10, 1e-12), "gradient of ", item.key());
      }
      for (const auto& item : alone->named_buffers())
        check(at::allclose(net->named_buffers()[item.key()].to(at::kDouble), item.value().to(at::kDouble), 1e-10),
              item.key());
      net->eval();
      check(at::allclose(net->forward(batch(9, 4)), net->forward(batch(9, 4))), "evaluates");
    });
    EXPECT_EQ(test::describe(outcomes), "") << ranks;
  }
}

TEST(SyncBatchNorm, RanksMayHaveDifferentNumbersOfSamplesAndNone) {
  const auto x = batch(3, 7).flatten(1);
  const auto whole = x.clone().requires_grad_();
  const auto weight = at::rand({50}, at::kDouble), bias = at::rand({50}, at::kDouble);
  const auto expected = at::batch_norm(whole, weight, bias, {}, {}, true, 0.1, 1e-5, false);
  (expected * expected * expected).sum().backward();
  const std::int64_t begin[] = {0, 2, 2, 7};
  const auto outcomes = test::run_threads(3, [&](Group& world) {
    const auto from = begin[world.rank()], rows = begin[world.rank() + 1] - from;
    const auto part = x.narrow(0, from, rows).clone().requires_grad_();
    const auto y = sync_batch_norm(world, part, weight, bias, {}, {}, 0.1, 1e-5);
    check(at::allclose(y, expected.narrow(0, from, rows), 1e-10, 1e-12), "values");
    (y * y * y).sum().backward();
    check(at::allclose(part.grad(), whole.grad().narrow(0, from, rows), 1e-9, 1e-10), "gradient");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(SyncBatchNorm, LargeMeansDoNotCancel) {
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    const auto x = (at::arange(8, at::kFloat).view({8, 1}) + 8 * world.rank()) + 1e6f;
    const auto y = sync_batch_norm(world, x, {}, {}, {}, {}, 0.1, 0);
    const double variance = (16.0 * 16.0 - 1) / 12;
    const double expected = (8 * world.rank() - 7.5) / std::sqrt(variance);
    check(std::abs(y[0][0].item<double>() - expected) < 1e-3, "first ", y[0][0].item<double>(), " expected ", expected);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(SyncBatchNorm, OthersAndThoseThatWereLetGoStayAsTheyWere) {
  auto nets = make_nets(2);
  torch::nn::BatchNorm1d other(4);
  const auto x = at::rand({6, 4});
  const auto before = other->forward(x);
  const auto outcomes = test::run_threads(2, [&](Group& world) {
    const auto net = nets[std::size_t(world.rank())];
    const auto one = batch(world.rank(), 4);
    const auto alone = net->forward(one);
    {
      const auto synced = sync_batch_norms(net, world);
      check(!at::allclose(net->forward(one), alone), "synchronised");
    }
    check(at::allclose(net->forward(one), alone), "let go");
  });
  EXPECT_EQ(test::describe(outcomes), "");
  EXPECT_TRUE(at::equal(other->forward(x), before));
}

TEST(SyncBatchNorm, RefusesWhatItCannotDo) {
  const auto outcomes = test::run_threads(1, [](Group& world) {
    const auto says = [&](const std::shared_ptr<torch::nn::Module>& module, const char* words) {
      check_says(error_of([&] { (void)sync_batch_norms(module, world); }), words);
    };
    says(std::make_shared<torch::nn::LinearImpl>(2, 2), "has no BatchNorm1d, BatchNorm2d or BatchNorm3d");
    torch::nn::Sequential bare(
        torch::nn::BatchNorm1d(torch::nn::BatchNorm1dOptions(2).affine(false).track_running_stats(false)));
    says(bare.ptr(), "the module \"0\" has neither weights nor running statistics");
    torch::nn::Sequential twice(torch::nn::BatchNorm1d(2));
    const auto synced = sync_batch_norms(twice.ptr(), world);
    says(twice.ptr(), "the module \"0\" is synchronised already");
    check_says(error_of([&] {
                 sync_batch_norm(world, at::ones({1, 2}), {}, {}, {}, {}, 0.1, 1e-5);
               }),
               "all ranks together have 1 value for each channel (this one has f32[1, 2, 1]); expected 2 or more");
    check_says(error_of([&] { sync_batch_norm(world, at::ones({3}), {}, {}, {}, {}, 0.1, 1e-5); }),
               "the input is f32[3]; expected [n, channels, ...]");
    const auto x = at::ones({3, 2}).requires_grad_();
    check_says(error_of([&] {
                 const auto out = sync_batch_norm(world, x, {}, {}, {}, {}, 0.1, 1e-5);
                 torch::autograd::backward({out.sum()}, {}, true, true);
               }),
               "sync_batch_norm has no second derivative");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
