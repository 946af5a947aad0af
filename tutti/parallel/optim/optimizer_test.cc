#include "tutti/parallel/optim/optimizer.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <unistd.h>

#include <filesystem>
#include <limits>
#include <memory>
#include <tuple>

#include "tutti/base/error.h"
#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/tensor/module_state.h"

namespace tutti {
namespace {

using testing::HasSubstr;

constexpr int kSteps = 25;

template <class Act>
std::string error_of(const Act& act) {
  try {
    act();
    return "no error";
  } catch (const Exception& e) {
    return e.what();
  }
}

// Weights stay within `tolerance`, relative to the largest of them, over many steps.
template <class Reference, class ReferenceOptions>
void compare(const UpdateRule& rule, const ReferenceOptions& options, at::ScalarType type) {
  const double tolerance = type == at::kDouble ? 1e-13 : 1e-6;
  at::manual_seed(3);
  const auto start = at::randn({70, 33}, type);
  const auto ours = start.clone().set_requires_grad(true), theirs = start.clone().set_requires_grad(true);
  Optimizer optimizer(std::vector{ours}, rule);
  Reference reference({theirs}, options);
  for (int step = 0; step < kSteps; ++step) {
    const auto gradient = at::randn({70, 33}, type);
    ours.mutable_grad() = gradient.clone();
    theirs.mutable_grad() = gradient.clone();
    optimizer.step();
    reference.step();
    const double apart = ((ours - theirs).abs().max() / theirs.abs().max()).template item<double>();
    ASSERT_LE(apart, tolerance) << name(rule) << ", step " << step;
  }
}

class OptimizerParity : public testing::TestWithParam<at::ScalarType> {};
INSTANTIATE_TEST_SUITE_P(, OptimizerParity, testing::Values(at::kFloat, at::kDouble),
                         [](const auto& info) { return std::string(info.param == at::kFloat ? "f32" : "f64"); });

TEST_P(OptimizerParity, Sgd) {
  for (double momentum : {0.0, 0.9}) {
    for (double decay : {0.0, 0.01}) {
      for (double dampening : {0.0, 0.3})
        compare<torch::optim::SGD>(
            SgdOptions{.lr = 0.05, .momentum = momentum, .weight_decay = decay, .dampening = dampening},
            torch::optim::SGDOptions(0.05).momentum(momentum).weight_decay(decay).dampening(dampening), GetParam());
    }
  }
  compare<torch::optim::SGD>(SgdOptions{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true},
                             torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(0.01).nesterov(true),
                             GetParam());
}

TEST_P(OptimizerParity, Adam) {
  compare<torch::optim::Adam>(AdamOptions{}, torch::optim::AdamOptions(), GetParam());
  for (bool amsgrad : {false, true})
    compare<torch::optim::Adam>(
        AdamOptions{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1, .amsgrad = amsgrad},
        torch::optim::AdamOptions(0.02).betas({0.8, 0.95}).eps(1e-6).weight_decay(0.1).amsgrad(amsgrad), GetParam());
}

TEST_P(OptimizerParity, AdamW) {
  compare<torch::optim::AdamW>(AdamWOptions{}, torch::optim::AdamWOptions(), GetParam());
  for (bool amsgrad : {false, true})
    compare<torch::optim::AdamW>(
        AdamWOptions{.lr = 0.02, .beta1 = 0.8, .beta2 = 0.95, .eps = 1e-6, .weight_decay = 0.1, .amsgrad = amsgrad},
        torch::optim::AdamWOptions(0.02).betas({0.8, 0.95}).eps(1e-6).weight_decay(0.1).amsgrad(amsgrad), GetParam());
}

TEST_P(OptimizerParity, Adagrad) {
  compare<torch::optim::Adagrad>(AdagradOptions{}, torch::optim::AdagradOptions(), GetParam());
  compare<torch::optim::Adagrad>(
      AdagradOptions{.lr = 0.05, .lr_decay = 0.1, .weight_decay = 0.01, .initial_accumulator_value = 0.5, .eps = 1e-6},
      torch::optim::AdagradOptions(0.05).lr_decay(0.1).weight_decay(0.01).initial_accumulator_value(0.5).eps(1e-6),
      GetParam());
}

// Golden values, f64: four steps of the published formula in PyTorch 1.13, weights wave(0.1), gradients wave(1),
// wave(2), ... Lion: `p = p * (1 - lr * wd) - lr * sign(b1 * m + (1 - b1) * g); m = b2 * m + (1 - b2) * g`.
// Muon: github.com/KellerJordan/Muon, muon_update() with Newton and Schulz's iteration in f64 in place of bf16.
at::Tensor wave(at::IntArrayRef shape, double phase) {
  return (at::arange(shape[0] * shape[1], at::kDouble) * 0.7 + phase).sin().view(shape);
}
at::Tensor weights_after_four_steps(const UpdateRule& rule, at::IntArrayRef shape) {
  const at::Tensor weight = wave(shape, 0.1).set_requires_grad(true);
  Optimizer optimizer(std::vector{weight}, rule);
  for (int step = 0; step < 4; ++step) {
    weight.mutable_grad() = wave(shape, 1.0 + step);
    optimizer.step();
  }
  return weight.detach();
}
void expect_golden(const at::Tensor& weights, std::vector<double> expected) {
  const auto golden = at::tensor(expected, at::kDouble).view(weights.sizes());
  EXPECT_TRUE(at::allclose(weights, golden, 0, 1e-14)) << weights << golden;
}

TEST(Lion, HasTheWeightsOfThePublishedFormula) {
  expect_golden(weights_after_four_steps(LionOptions{.lr = 0.05, .weight_decay = 0.1}, {1, 6}),
                {-6.53320277923828685e-04, 7.04111220515469260e-01, 1.07769171924590501e+00, 8.92444852710879810e-01,
                 3.33005104303951138e-01, -4.34731197761803245e-01});
}

TEST(Muon, HasTheWeightsOfThePublishedFormula) {
  MuonOptions options{.lr = 0.05};
  expect_golden(weights_after_four_steps(options, {2, 3}),
                {-0.00534833912087437, 0.70233734973047657, 1.07970280867977109, 0.83319779325201948,
                 0.31472121641664602, -0.35177366615413508});
  expect_golden(weights_after_four_steps(options, {3, 2}),
                {-0.01720539922057963, 0.72826702231703011, 0.94920160215086646, 0.92462441147543717,
                 0.33987156792840761, -0.41395548336843663});
  options.nesterov = false;
  expect_golden(weights_after_four_steps(options, {3, 2}),
                {-0.02719305492821580, 0.70203420836756536, 0.89840537452879132, 0.95047443128902676,
                 0.33259184427797506, -0.37893536139571093});
}

TEST(Muon, StepsMatricesAndLeavesOthersToAGroup) {
  torch::nn::Linear layer(4, 3);
  EXPECT_THAT(
      error_of([&] { Muon muon(*layer); }),
      HasSubstr("Muon: parameter bias is f32[3], and the rule steps matrices; put parameters of other dimensions "
                "into a ParameterGroup with another rule"));
  const auto others = names_of(*layer, [](const std::string&, const at::Tensor& p) { return p.dim() != 2; });
  Muon muon(*layer, {.lr = 0.5, .weight_decay = 0}, {{.names = others, .rule = SgdOptions{.lr = 0.25}}});
  layer->weight.mutable_grad() = at::eye(3, 4);
  layer->bias.mutable_grad() = at::ones({3});
  const auto bias = layer->bias.detach().clone(), weight = layer->weight.detach().clone();
  muon.clip_grad_norm(1);  // scales what is orthogonalised in the end: Muon's step stays
  muon.step();
  EXPECT_LT((layer->bias.detach() - bias).min().item<double>(), 0);
  EXPECT_NEAR((weight - layer->weight.detach()).diagonal().mean().item<double>(), 0.5, 0.2);
  std::vector<std::string> kept;
  for (const auto& part : muon.own_state()) kept.push_back(part.parameter + "/" + part.state);
  EXPECT_THAT(kept, testing::ElementsAre("weight/momentum_buffer", "weight/step", "bias/step"));
}

TEST(Optimizer, LeavesParametersWithoutAGradientAlone) {
  auto used = at::ones({2}).set_requires_grad(true), unused = at::ones({2}).set_requires_grad(true);
  Sgd sgd({used, unused}, {.lr = 0.5});
  used.mutable_grad() = at::ones({2});
  sgd.step();
  EXPECT_EQ(used[0].item<float>(), 0.5f);
  EXPECT_EQ(unused[0].item<float>(), 1.0f);
  sgd.zero_grad();
  EXPECT_FALSE(used.grad().defined());
}

TEST(Optimizer, CountsTheStepsOfEachParameter) {
  auto always = at::ones({1}, at::kDouble).set_requires_grad(true),
       late = always.detach().clone().set_requires_grad(true);
  Adam adam({always, late}, {.lr = 0.25});
  for (int step = 0; step < 2; ++step) {
    always.mutable_grad() = at::ones({1}, at::kDouble);
    if (step == 1) late.mutable_grad() = at::full({1}, 8, at::kDouble);
    adam.step();
  }
  EXPECT_NEAR(late.item<double>(), 0.75, 1e-8) << "a first step has the length of the learning rate";
}

TEST(Optimizer, AParameterThatIsListedTwiceTakesOneStep) {
  auto tied = at::ones({2}).set_requires_grad(true), other = at::ones({2}).set_requires_grad(true);
  Sgd sgd({tied, other, tied}, {.lr = 0.5, .momentum = 0.9});
  for (auto* parameter : {&tied, &other}) parameter->mutable_grad() = at::ones({2});
  sgd.step();
  EXPECT_EQ(tied[0].item<float>(), 0.5f);
  EXPECT_EQ(other[0].item<float>(), 0.5f);
}

TEST(ParameterGroups, EqualThoseOfLibTorch) {
  at::manual_seed(3);
  const std::vector<at::Tensor> start = {at::randn({9, 7}), at::randn({7}), at::randn({5})};
  std::vector<at::Tensor> ours, theirs;
  for (const auto& tensor : start) {
    ours.push_back(tensor.clone().set_requires_grad(true));
    theirs.push_back(tensor.clone().set_requires_grad(true));
  }
  AdamW optimizer(ours, {.lr = 0.02, .weight_decay = 0.1},
                  {{.names = {"1"}, .rule = AdamWOptions{.lr = 0.02, .weight_decay = 0}},
                   {.names = {"2"}, .rule = AdamWOptions{.lr = 0.5, .weight_decay = 0.1}}});
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const auto& [lr, decay, number] : {std::tuple{0.02, 0.1, 0}, {0.02, 0.0, 1}, {0.5, 0.1, 2}})
    groups.emplace_back(
        std::vector{theirs[std::size_t(number)]},
        std::make_unique<torch::optim::AdamWOptions>(torch::optim::AdamWOptions(lr).weight_decay(decay)));
  torch::optim::AdamW reference(groups, torch::optim::AdamWOptions());
  const auto steps = [&] {
    for (int step = 0; step < 5; ++step) {
      for (std::size_t i = 0; i < ours.size(); ++i) {
        ours[i].mutable_grad() = at::randn_like(start[i]);
        theirs[i].mutable_grad() = ours[i].grad().clone();
      }
      optimizer.step();
      reference.step();
    }
    for (std::size_t i = 0; i < ours.size(); ++i) EXPECT_TRUE(at::allclose(ours[i], theirs[i], 1e-5, 1e-6)) << i;
  };
  steps();
  optimizer.set_lr(0.25, 2);
  reference.param_groups()[2].options().set_lr(0.25);
  EXPECT_EQ(optimizer.lr(), 0.02);
  EXPECT_EQ(optimizer.lr(2), 0.25);
  steps();
  optimizer.set_lr(0.001);
  for (auto& group : reference.param_groups()) group.options().set_lr(0.001);
  EXPECT_EQ(optimizer.lr(2), 0.001);
  steps();
}

// Rules of other kinds keep other states.
TEST(ParameterGroups, MayHaveRulesOfTheirOwn) {
  torch::nn::Linear layer(4, 3);
  const auto vectors = names_of(*layer, [](const std::string&, const at::Tensor& p) { return p.dim() < 2; });
  EXPECT_THAT(vectors, testing::ElementsAre("bias"));
  Adam optimizer(*layer, {}, {{.names = vectors, .rule = SgdOptions{.momentum = 0.9}}});
  std::vector<std::string> kept;
  for (const auto& part : optimizer.own_state()) kept.push_back(part.parameter + "/" + part.state);
  EXPECT_THAT(kept, testing::ElementsAre("weight/exp_avg", "weight/exp_avg_sq", "weight/step", "bias/momentum_buffer",
                                         "bias/step"));
}

TEST(ParameterGroups, MistakesGetASentence) {
  torch::nn::Linear layer(4, 3);
  const auto refusal = [&](std::vector<ParameterGroup> groups) {
    return error_of([&] { Sgd(*layer, {}, std::move(groups)); });
  };
  EXPECT_THAT(refusal({{.names = {"wieght"}, .rule = SgdOptions{}}}),
              HasSubstr("Sgd: parameter group 1 has \"wieght\", which is none of the 2 parameters of this optimizer "
                        "(hint: they are named like weight)"));
  EXPECT_THAT(refusal({{.names = {"bias"}, .rule = SgdOptions{}}, {.names = {"bias"}, .rule = AdamOptions{}}}),
              HasSubstr("Adam: bias is in parameter group 1 and in 2"));
  EXPECT_THAT(refusal({{.names = {"bias", "bias"}, .rule = SgdOptions{}}}),
              HasSubstr("bias is in parameter group 1 twice"));
  EXPECT_THAT(refusal({{.names = {"bias"}, .rule = AdamOptions{.eps = -1}}}), HasSubstr("Adam: eps is -1"));
  Sgd sgd(*layer);
  EXPECT_THAT(error_of([&] { sgd.set_lr(-1); }), HasSubstr("Sgd: lr is -1; expected a number that is not negative"));
  EXPECT_THAT(error_of([&] { sgd.set_lr(1, 1); }), HasSubstr("there is no parameter group 1: this optimizer has 1"));
  EXPECT_EQ(sgd.lr(), 0.05);
}

TEST(Optimizer, AutogradSeesThatWeightsHaveChanged) {
  auto w = at::ones({2}).set_requires_grad(true);
  Sgd sgd({w}, {.lr = 0.5});
  const auto loss = (w * w).sum();
  w.mutable_grad() = at::ones({2});
  sgd.step();
  EXPECT_THROW(loss.backward(), std::exception);
}

TEST(Optimizer, StepsWeightsAndGradientsInAnyOrderOfMemory) {
  auto w = at::arange(6, at::kFloat).view({2, 3}).t().set_requires_grad(true);
  Sgd sgd({w}, {.lr = 1});
  w.mutable_grad() = at::arange(6, at::kFloat).view({3, 2});
  const auto expected = w.detach().clone() - w.grad();
  sgd.step();
  EXPECT_TRUE(at::equal(w, expected));
  EXPECT_THAT(error_of([&] { sgd.own_state(); }), HasSubstr("the parameter is not contiguous"));
}

TEST(Optimizer, RefusesWhatItCannotStep) {
  EXPECT_THAT(error_of([] { Sgd({at::ones({2}, at::kHalf)}, {}); }),
              HasSubstr("Sgd: parameter 0 is f16[2]; expected f32 or f64"));
  EXPECT_THAT(error_of([] { Adam({at::ones({4, 4}).narrow(1, 0, 2)}, {}); }), HasSubstr("has holes or overlaps"));
  auto w = at::ones({2, 2}).set_requires_grad(true);
  Adagrad adagrad({w});
  w.mutable_grad() = at::ones({2, 2}).to_sparse();
  EXPECT_THAT(error_of([&] { adagrad.step(); }), HasSubstr("the gradient of parameter 0 is sparse"));
}

TEST(Optimizer, RefusesOptionsOutOfRange) {
  const auto refusal = [](const UpdateRule& rule) { return to_string(check(rule).error()); };
  EXPECT_THAT(refusal(SgdOptions{.lr = -1}), HasSubstr("Sgd: lr is -1; expected a number that is not negative"));
  EXPECT_THAT(refusal(SgdOptions{.nesterov = true}), HasSubstr("nesterov with momentum 0 and dampening 0"));
  EXPECT_THAT(refusal(AdamOptions{.beta1 = 1}), HasSubstr("Adam: beta1 is 1; expected a number from 0 to below 1"));
  EXPECT_THAT(refusal(AdamWOptions{.eps = -1e-8}), HasSubstr("AdamW: eps is -1e-08"));
  EXPECT_THAT(refusal(AdagradOptions{.lr_decay = -2}), HasSubstr("Adagrad: lr_decay is -2"));
  EXPECT_THAT(refusal(LionOptions{.beta2 = 1}), HasSubstr("Lion: beta2 is 1"));
  EXPECT_THAT(refusal(MuonOptions{.ns_steps = 0}), HasSubstr("Muon: ns_steps is 0; expected 1 to 99 steps"));
  EXPECT_THAT(error_of([] { Adam({at::ones({1})}, {.beta2 = 2}); }), HasSubstr("beta2 is 2"));
}

struct Gradients {
  std::vector<at::Tensor> parameters = {at::ones({300, 200}).set_requires_grad(true),
                                        at::ones({7}, at::kDouble).set_requires_grad(true),
                                        at::ones({3}).set_requires_grad(true)};
  std::vector<NamedTensor> named;
  explicit Gradients(double scale) {
    at::manual_seed(5);
    for (std::size_t i = 0; i < 2; ++i) {
      parameters[i].mutable_grad() = at::randn_like(parameters[i].detach()) * scale;
      named.push_back({std::string(1, char('a' + i)), parameters[i]});
    }
    named.push_back({"unused", parameters[2]});
  }
};

TEST(Clipping, EqualsLibTorchs) {
  for (double scale : {1.0, 1e-4}) {
    Gradients ours(scale), theirs(scale);
    const auto norm = clip_grad_norm(ours.named, 2.0);
    const double expected =
        torch::nn::utils::clip_grad_norm_(std::vector<at::Tensor>{theirs.parameters[0], theirs.parameters[1]}, 2.0);
    EXPECT_NEAR(norm.norm / expected, 1, 1e-6);
    EXPECT_TRUE(norm.finite());
    for (int i = 0; i < 2; ++i)
      EXPECT_TRUE(at::allclose(ours.parameters[i].grad(), theirs.parameters[i].grad(), 1e-6, 0)) << scale;
  }
  for (double scale : {1e-20, 1e18})  // squares that f32 does not hold
    EXPECT_NEAR(gradient_norm(Gradients(scale).named).norm / scale / gradient_norm(Gradients(1).named).norm, 1, 1e-6);
  Gradients ours(1), theirs(1);
  clip_grad_value(ours.named, 0.3);
  torch::nn::utils::clip_grad_value_(std::vector<at::Tensor>{theirs.parameters[0], theirs.parameters[1]}, 0.3);
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(ours.parameters[i].grad(), theirs.parameters[i].grad()));
}

TEST(Clipping, IsTheSameWithinTheStep) {
  Gradients apart(1), fused(1);
  Sgd before(apart.parameters, {.lr = 0.1}), within(fused.parameters, {.lr = 0.1});
  const auto norm = clip_grad_norm(apart.named, 1.5);
  clip_grad_value(apart.named, 0.01);
  before.step();
  EXPECT_EQ(within.clip_grad_norm(1.5).norm, norm.norm);
  within.clip_grad_value(0.01);
  within.step();
  for (int i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(apart.parameters[i], fused.parameters[i]));
  within.step();
  EXPECT_FALSE(at::equal(apart.parameters[0] * 2 - 1, fused.parameters[0])) << "the next step is not clipped";
}

TEST(Clipping, GoesWithTheGradientsThatItWasFor) {
  Gradients skipped(1), plain(1);
  Sgd one(skipped.parameters, {.lr = 0.1}), other(plain.parameters, {.lr = 0.1});
  const auto gradient = skipped.parameters[0].grad().clone();
  one.clip_grad_norm(0.001);
  one.clip_grad_value(1e-6);
  one.zero_grad();  // in place of step()
  skipped.parameters[0].mutable_grad() = gradient;
  one.step();
  other.step();
  EXPECT_TRUE(at::equal(skipped.parameters[0], plain.parameters[0]));
}

TEST(Clipping, SquaresOfF64MayOverflow) {
  auto weight = at::zeros({40000}, at::kDouble).requires_grad_();
  weight.mutable_grad() = at::full({40000}, 3e200, at::kDouble);
  const auto result = clip_grad_norm(std::vector<NamedTensor>{{"weight", weight}}, 1);
  EXPECT_TRUE(result.finite()) << result.non_finite;
  EXPECT_NEAR(result.norm / 6e202, 1, 1e-12);
  EXPECT_NEAR(weight.grad()[7].item<double>(), 0.005, 1e-12);
  weight.mutable_grad()[3] = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(clip_grad_norm(std::vector<NamedTensor>{{"weight", weight}}, 1).non_finite,
            "the gradient of weight has a NaN or an infinity");
}

TEST(Clipping, NamesTheParameterWithANaNAndLeavesGradientsAlone) {
  Gradients g(1);
  g.parameters[1].mutable_grad()[3] = std::numeric_limits<double>::quiet_NaN();
  const auto before = g.parameters[0].grad().clone();
  const auto norm = clip_grad_norm(g.named, 0.1);
  EXPECT_EQ(norm.non_finite, "the gradient of b has a NaN or an infinity");
  EXPECT_TRUE(at::equal(g.parameters[0].grad(), before));
  clip_grad_value(g.named, 0.1);
  EXPECT_TRUE(std::isnan(g.parameters[1].grad()[3].item<double>()));
}

TEST(Clipping, RefusesANegativeLimit) {
  Gradients g(1);
  EXPECT_THAT(
      error_of([&] { clip_grad_norm(g.named, -1); }),
      HasSubstr("clip_grad_norm: max_norm is -1; expected a number that is not negative (hint: leave the call out"));
  EXPECT_THAT(error_of([&] { clip_grad_value(g.named, -0.5); }), HasSubstr("clip_grad_value: limit is -0.5"));
  Sgd sgd(g.parameters, {});
  EXPECT_THAT(error_of([&] { sgd.clip_grad_norm(std::numeric_limits<double>::quiet_NaN()); }),
              HasSubstr("max_norm is nan"));
}

TEST(OptimizerState, GoesFromOneOptimizerToAnother) {
  at::manual_seed(8);
  const auto step = [](torch::nn::Linear& layer, Adam& adam) {
    for (auto& parameter : layer->parameters()) parameter.mutable_grad() = at::ones_like(parameter.detach()) * 0.3;
    adam.step();
  };
  torch::nn::Linear first(5, 3), second(5, 3);
  Adam one(*first, {.lr = 0.1, .amsgrad = true}), other(*second, {.lr = 0.1, .amsgrad = true});
  for (int i = 0; i < 3; ++i) step(first, one);
  {
    const at::NoGradGuard no_grad;
    second->weight.copy_(first->weight);
    second->bias.copy_(first->bias);
  }
  other.load_state(one.own_state());
  step(first, one);
  step(second, other);
  EXPECT_TRUE(at::equal(first->weight, second->weight));

  const auto state = one.own_state();
  ASSERT_EQ(state.size(), 8u);
  EXPECT_EQ(state[0].parameter + "/" + state[0].state, "weight/exp_avg");
  EXPECT_EQ(state[2].state, "max_exp_avg_sq");
  EXPECT_EQ(state[3].values.item<std::int64_t>(), 4);
  Adam plain(*first);
  EXPECT_THAT(error_of([&] { other.load_state(plain.own_state()); }),
              HasSubstr("the state given has not all of max_exp_avg_sq of weight: 15 of 15 elements are missing"));
}

TEST(OptimizerState, ACounterThatIsNoNumberOfStepsIsRejected) {
  torch::nn::Linear layer(2, 1);
  Adam adam(*layer);
  const std::string folder = testing::TempDir() + "tutti_steps_" + std::to_string(::getpid());
  const auto read = [&](std::int64_t step) {
    const auto state = adam.own_state();
    for (const StatePart& part : state)
      if (part.state == "step") part.values.fill_(step);
    StateDict saved(StateUse::kSave), loaded(StateUse::kLoad);
    saved.add("optimizer", state);
    loaded.add("optimizer", state);
    save_checkpoint(Group(), folder, saved).or_throw();
    const Status read = loaded.load(Group(), CheckpointReader::open(folder).or_throw());
    std::filesystem::remove_all(folder);
    return read.ok() ? "ok" : to_string(read.error());
  };
  EXPECT_EQ(read(0), "ok");
  EXPECT_EQ(read(1'000'000), "ok");
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  EXPECT_THAT(read(kMost), HasSubstr("step of weight is 9223372036854775807, expected 0 to 1000000000000000"));
  EXPECT_THAT(read(-kMost - 1), HasSubstr("step of weight is -9223372036854775808, expected 0 to"))
      << "2^63 as it is read";
}

TEST(OptimizerState, ARunOfElementsIsAListOfBoxes) {
  const TensorShape shape = {3, 4, 5};
  for (std::uint64_t begin = 0; begin < 60; ++begin) {
    for (std::uint64_t count = 0; begin + count <= 60; ++count) {
      std::uint64_t next = begin;
      const auto boxes = boxes_of_run(shape, begin, count);
      EXPECT_LE(boxes.size(), 5u);
      for (const auto& box : boxes) {
        ASSERT_TRUE(box.inside(shape)) << box_text(box);
        for (std::uint64_t i = 0; i < box.extent[0]; ++i)
          for (std::uint64_t j = 0; j < box.extent[1]; ++j)
            for (std::uint64_t k = 0; k < box.extent[2]; ++k)
              ASSERT_EQ(next++, ((box.begin[0] + i) * 4 + box.begin[1] + j) * 5 + box.begin[2] + k) << box_text(box);
      }
      ASSERT_EQ(next, begin + count);
    }
  }
}

}  // namespace
}  // namespace tutti
