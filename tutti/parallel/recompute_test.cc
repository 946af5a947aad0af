#include "tutti/parallel/recompute.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "tutti/base/error.h"
#include "tutti/parallel/data_parallel/precision/mixed_precision.h"
#include "tutti/parallel/pipeline/test_stack.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

struct Numbers {
  at::Tensor output, input_gradient, weight_gradient, random;
};

// Two layers with dropout, plainly or recomputed, from one seed.
Numbers run(bool again, const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& layer) {
  at::manual_seed(7);
  const at::Tensor weight = Stack::values({4, 4}, 3).requires_grad_(), x = Stack::values({5, 4}, 1).requires_grad_();
  const TensorFunction block = [&](const at::Tensor& from) { return at::dropout(layer(from, weight), 0.5, true); };
  at::Tensor y = again ? recompute(block, x) : block(x);
  y = again ? recompute(block, y) : block(y);
  y = at::dropout(y, 0.5, true);  // of the same generator, between the two halves
  const at::Tensor before = at::rand({2});
  y.square().sum().backward();
  return {y.detach(), x.grad(), weight.grad(), at::cat({before, at::rand({2})})};
}

void expect_equal(const Numbers& a, const Numbers& b) {
  EXPECT_TRUE(at::equal(a.output, b.output));
  EXPECT_TRUE(at::equal(a.input_gradient, b.input_gradient));
  EXPECT_TRUE(at::equal(a.weight_gradient, b.weight_gradient));
  EXPECT_TRUE(at::equal(a.random, b.random)) << "the generator went another way";
}

TEST(Recompute, EqualsWithoutWithDropout) {
  const auto layer = [](const at::Tensor& x, const at::Tensor& w) { return at::tanh(x.matmul(w)); };
  expect_equal(run(false, layer), run(true, layer));
}

TEST(Recompute, NestsAndRunsTwice) {
  int inner_runs = 0, outer_runs = 0;
  const auto layer = [&](const at::Tensor& x, const at::Tensor& w) {
    ++outer_runs;
    return recompute(
        [&, w](const at::Tensor& y) { return ++inner_runs, at::dropout(at::tanh(y.matmul(w)), 0.3, true); }, x);
  };
  const Numbers nested = run(true, layer);
  EXPECT_EQ(outer_runs, 4);  // two blocks, twice each
  EXPECT_EQ(inner_runs, 6);  // and once more in the backward of the inner one
  const auto plain = [](const at::Tensor& x, const at::Tensor& w) {
    return at::dropout(at::tanh(x.matmul(w)), 0.3, true);
  };
  expect_equal(run(false, plain), nested);
}

TEST(Recompute, AFirstLayerLearnsFromData) {
  const at::Tensor table = Stack::values({5, 4}, 1).requires_grad_(), ids = at::arange(3, at::kLong);
  recompute([&](const at::Tensor& from) { return at::embedding(table, from); }, ids).sum().backward();
  ASSERT_TRUE(table.grad().defined());
  EXPECT_EQ(table.grad().sum().item<double>(), 12);
}

TEST(Recompute, SeveralTensors) {
  const at::Tensor a = Stack::values({3}, 1).requires_grad_(), b = Stack::values({3}, 2).requires_grad_();
  const at::Tensor constant = Stack::values({3}, 3);
  const TensorsFunction function = [](const std::vector<at::Tensor>& in) {
    return std::vector<at::Tensor>{in[0] * in[1], in[1] * in[2], in[2] + 1};
  };
  const auto out = recompute(function, {a, b, constant});
  ASSERT_EQ(out.size(), 3u);
  (out[0].sum() + 2 * out[1].sum()).backward();
  EXPECT_TRUE(at::equal(a.grad(), b.detach()));
  EXPECT_TRUE(at::equal(b.grad(), a.detach() + 2 * constant));
  EXPECT_TRUE(at::equal(out[2].detach(), constant + 1));
}

TEST(Recompute, AnOutputMayBeTheInput) {
  const at::Tensor x = Stack::values({3}, 1).requires_grad_();
  const at::Tensor y = x * 2;
  recompute([](const at::Tensor& from) { return from; }, y).sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({3}, 2, at::kDouble)));
}

TEST(Recompute, RejectsASecondDerivative) {
  const at::Tensor x = at::ones({3}).requires_grad_();
  const at::Tensor y = recompute([](const at::Tensor& from) { return from.square(); }, x).sum();
  EXPECT_THAT([&] { torch::autograd::backward({y}, {}, true, true); },
              ::testing::ThrowsMessage<Exception>(HasSubstr("recompute has no second derivative")));
}

TEST(Recompute, WithoutGradientsItIsTheFunction) {
  const c10::AutoGradMode off(false);
  int runs = 0;
  const at::Tensor y = recompute([&](const at::Tensor& x) { return ++runs, x + 1; }, at::ones({2}));
  EXPECT_TRUE(at::equal(y, at::full({2}, 2.f)));
  EXPECT_EQ(runs, 1);
  EXPECT_FALSE(y.requires_grad());
}

TEST(Recompute, SeesTheAutocastOfTheFirstRun) {
  std::vector<AutocastSettings> seen;
  const at::Tensor x = at::ones({2, 2}).requires_grad_();
  const auto function = [&](const at::Tensor& from) { return seen.push_back(autocast_now()), from.matmul(from); };
  at::Tensor y;
  {
    const Autocast bf16(DType::kBF16);
    y = recompute(function, x);
  }
  y = recompute(function, y.to(at::kFloat));
  y.sum().backward();
  const AutocastSettings none = autocast_now();
  EXPECT_FALSE(none.cpu.on || none.gpu.on);
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_TRUE(seen[0].cpu.on && seen[0].gpu.on);
  EXPECT_EQ(seen[3], seen[0]);
  EXPECT_EQ(seen[1], none);
  EXPECT_EQ(seen[2], none);
}

TEST(Recompute, SeesAnAutocastOfGpusAlone) {
  std::vector<AutocastSettings> seen;
  const auto function = [&](const at::Tensor& from) { return seen.push_back(autocast_now()), from * 2; };
  AutocastSettings settings = autocast_now();
  settings.gpu = {true, int(at::kHalf)};
  at::Tensor y;
  {
    const Autocast on_gpus(settings);
    y = recompute(function, at::ones({2}).requires_grad_());
  }
  y.sum().backward();
  EXPECT_EQ(seen, (std::vector{settings, settings}));
}

TEST(Recompute, WeightGradientsArePutOffInsideToo) {
  const at::Tensor w = Stack::values({4, 4}, 1).requires_grad_(), x = Stack::values({2, 4}, 2).requires_grad_();
  const at::Tensor y = recompute([&](const at::Tensor& from) { return PutOffProduct::apply(from, w); }, x).sum();
  WeightGradients later;
  {
    const WeightGradients::Scope scope(later);
    y.backward();
  }
  EXPECT_TRUE(x.grad().defined());
  EXPECT_FALSE(w.grad().defined());
  later.run();
  EXPECT_TRUE(at::allclose(w.grad(), x.detach().t().matmul(at::ones({2, 4}, at::kDouble))));
}

TEST(RunLayers, RecomputesAsTheMethodSays) {
  const auto runs_of = [](const RecomputeOptions& options) {
    std::string order;
    const at::Tensor weight = at::ones({}, at::kDouble).requires_grad_();
    std::vector<TensorFunction> layers;
    for (int i = 0; i < 5; ++i)
      layers.push_back([&, i](const at::Tensor& x) { return order += char('a' + i), at::sin(x * weight); });
    const at::Tensor x = Stack::values({3}, 1).requires_grad_();
    const at::Tensor y = run_layers(layers, x, options);
    order += '|';
    y.sum().backward();
    return order + ' ' + std::to_string(weight.grad().item<double>()) + ' ' +
           std::to_string(x.grad().sum().item<double>());
  };
  const std::string numbers = runs_of({}).substr(6);
  EXPECT_EQ(runs_of({}), "abcde|" + numbers);
  EXPECT_EQ(runs_of({RecomputeMethod::kUniform, 1}), "abcde|edcba" + numbers);
  EXPECT_EQ(runs_of({RecomputeMethod::kUniform, 2}), "abcde|ecdab" + numbers);
  EXPECT_EQ(runs_of({RecomputeMethod::kBlock, 2}), "abcde|ba" + numbers);
  EXPECT_EQ(runs_of({RecomputeMethod::kBlock, 9}), "abcde|edcba" + numbers);
  try {
    run_layers({}, at::ones({1}), {RecomputeMethod::kBlock, 0});
    ADD_FAILURE() << "0 layers";
  } catch (const Exception& error) {
    EXPECT_THAT(error.what(), HasSubstr("0 layers at a time, expected 1 or more"));
  }
}

}  // namespace
}  // namespace tutti::test
