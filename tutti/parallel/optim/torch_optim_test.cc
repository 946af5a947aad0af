// An optimizer of torch::optim that was saved and loaded takes the steps of one that was not.
#include "tutti/parallel/optim/torch_optim.h"

#include <gmock/gmock.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim.h>

#include "tests/harness/checkpoints.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/tensor/module_state.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;
using Params = std::vector<at::Tensor>;
namespace optim = torch::optim;

struct NetImpl : torch::nn::Module {
  at::Tensor forward(const at::Tensor& x) { return linear(conv(x).flatten(1).tanh()); }
  torch::nn::Conv2d conv = register_module("conv", torch::nn::Conv2d(2, 3, 3));
  torch::nn::Linear linear = register_module("linear", torch::nn::Linear(12, 2));
  torch::nn::Linear unused = register_module("unused", torch::nn::Linear(2, 2));  // has no gradients
};
TORCH_MODULE(Net);

Net make_net() {
  torch::manual_seed(3);
  return Net();
}

template <class Step>
void train(Net& net, Step&& step, int from, int to) {
  for (int k = from; k < to; ++k) {
    net->zero_grad();
    net->forward(at::full({2, 2, 4, 4}, 0.1 * (k + 1))).square().mean().backward();
    step();
  }
}

void expect_equal(Net& one, Net& other, double tolerance = 0) {
  const auto a = one->parameters(), b = other->parameters();
  for (std::size_t i = 0; i < a.size(); ++i)
    EXPECT_LE((a[i] - b[i]).abs().max().item<double>(), tolerance) << "parameter " << i;
}

template <class Saved>
void save(const std::string& folder, Net& net, Saved& optimizer) {
  StateDict dict(StateUse::kSave);
  dict.add("model", net);
  dict.add("optimizer", optimizer);
  save_checkpoint(Group(), folder, dict).or_throw();
}
template <class Loaded>
void load(const std::string& folder, Net& net, Loaded& optimizer) {
  StateDict dict(StateUse::kLoad);
  dict.add("model", net);
  dict.add("optimizer", optimizer);
  dict.load(Group(), CheckpointReader::open(folder).or_throw()).or_throw();
}

// What the optimizer keeps for such a weight is not contiguous either.
Net make_net_with_channels_last() {
  Net net = make_net();
  net->conv->weight.set_data(net->conv->weight.contiguous(at::MemoryFormat::ChannelsLast));
  return net;
}

TEST(TorchOptim, TrainsOnAfterALoadAsIfThereHadBeenNone) {
  using Make = std::function<std::unique_ptr<optim::Optimizer>(const Params&)>;
  const auto a = [](auto options) -> Make {
    return [options](const Params& p) -> std::unique_ptr<optim::Optimizer> {
      using Options = std::decay_t<decltype(options)>;
      if constexpr (std::is_same_v<Options, optim::SGDOptions>) return std::make_unique<optim::SGD>(p, options);
      if constexpr (std::is_same_v<Options, optim::AdamOptions>) return std::make_unique<optim::Adam>(p, options);
      if constexpr (std::is_same_v<Options, optim::AdamWOptions>) return std::make_unique<optim::AdamW>(p, options);
      if constexpr (std::is_same_v<Options, optim::AdagradOptions>) return std::make_unique<optim::Adagrad>(p, options);
      if constexpr (std::is_same_v<Options, optim::RMSpropOptions>) return std::make_unique<optim::RMSprop>(p, options);
    };
  };
  const std::map<std::string, Make> makes = {
      {"SGD", a(optim::SGDOptions(0.1))},
      {"SGD, Nesterov", a(optim::SGDOptions(0.1).momentum(0.9).nesterov(true))},
      {"Adam", a(optim::AdamOptions(0.01))},
      {"Adam, AMSGrad", a(optim::AdamOptions(0.01).amsgrad(true))},
      {"AdamW", a(optim::AdamWOptions(0.01))},
      {"Adagrad", a(optim::AdagradOptions(0.01).lr_decay(0.1))},
      {"RMSprop", a(optim::RMSpropOptions(0.01).momentum(0.5).centered(true))},
  };
  for (const auto& [name, make] : makes) {
    SCOPED_TRACE(name);
    const test::TemporaryFolder folder;
    Net whole = make_net_with_channels_last(), first = make_net_with_channels_last(),
        second = make_net_with_channels_last();
    const auto undisturbed = make(whole->parameters()), before = make(first->parameters()),
               after = make(second->parameters());
    train(
        whole, [&] { undisturbed->step(); }, 0, 6);
    TorchOptim saved(*first, *before), loaded(*second, *after);
    train(
        first, [&] { before->step(); }, 0, 3);
    save(folder.path(), first, saved);
    load(folder.path(), second, loaded);
    train(
        second, [&] { after->step(); }, 3, 6);
    expect_equal(whole, second);
  }
}

TEST(TorchOptim, ASaveBeforeTheFirstStepChangesNoStep) {
  Net whole = make_net(), saved_early = make_net();
  const auto options = optim::SGDOptions(0.1).momentum(0.9);
  optim::SGD undisturbed(whole->parameters(), options), sgd(saved_early->parameters(), options);
  TorchOptim optimizer(*saved_early, sgd);
  const test::TemporaryFolder folder;
  save(folder.path(), saved_early, optimizer);
  train(
      whole, [&] { undisturbed.step(); }, 0, 3);
  train(
      saved_early, [&] { sgd.step(); }, 0, 3);
  expect_equal(whole, saved_early);
}

TEST(TorchOptim, OptimizersOfTuttiResumeItsStateAndBack) {
  const test::TemporaryFolder there, back;
  Net whole = make_net(), first = make_net(), second = make_net(), third = make_net();
  const auto options = optim::AdamWOptions(0.01).weight_decay(0.01);
  optim::AdamW undisturbed(whole->parameters(), options), torch_adam(first->parameters(), options),
      again(third->parameters(), options);
  AdamW tutti_adam(*second, {.lr = 0.01, .weight_decay = 0.01});
  TorchOptim saved(*first, torch_adam), loaded(*third, again);
  train(
      whole, [&] { undisturbed.step(); }, 0, 6);
  train(
      first, [&] { torch_adam.step(); }, 0, 2);
  save(there.path(), first, saved);
  load(there.path(), second, tutti_adam);
  train(
      second, [&] { tutti_adam.step(); }, 2, 4);
  save(back.path(), second, tutti_adam);
  load(back.path(), third, loaded);
  train(
      third, [&] { again.step(); }, 4, 6);
  expect_equal(whole, third, 1e-6);
}

TEST(TorchOptim, SgdLoadsWhatTuttisSgdSaved) {
  const test::TemporaryFolder folder;
  Net whole = make_net(), first = make_net(), second = make_net();
  const auto options = optim::SGDOptions(0.1).momentum(0.9);
  optim::SGD undisturbed(whole->parameters(), options), sgd(second->parameters(), options);
  Sgd saved(*first, {.lr = 0.1, .momentum = 0.9});
  TorchOptim loaded(*second, sgd);
  train(
      whole, [&] { undisturbed.step(); }, 0, 6);
  train(
      first, [&] { saved.step(); }, 0, 3);
  save(folder.path(), first, saved);
  load(folder.path(), second, loaded);
  train(
      second, [&] { sgd.step(); }, 3, 6);
  expect_equal(whole, second, 1e-6);
}

TEST(TorchOptim, AGroupThatIsAddedLaterIsSavedToo) {
  const test::TemporaryFolder folder;
  Net net = make_net(), other = make_net();
  const auto before = std::make_unique<optim::Adam>(net->conv->parameters(), optim::AdamOptions(0.01)),
             after = std::make_unique<optim::Adam>(other->conv->parameters(), optim::AdamOptions(0.01));
  TorchOptim saved(*net, *before), loaded(*other, *after);
  for (auto [model, adam] : {std::pair(&net, before.get()), {&other, after.get()}}) {
    optim::OptimizerParamGroup group((*model)->linear->parameters());
    group.set_options(std::make_unique<optim::AdamOptions>(0.1));
    adam->add_param_group(group);
  }
  train(
      net, [&] { before->step(); }, 0, 3);
  save(folder.path(), net, saved);
  load(folder.path(), other, loaded);
  train(
      net, [&] { before->step(); }, 3, 5);
  train(
      other, [&] { after->step(); }, 3, 5);
  expect_equal(net, other);

  torch::nn::Linear strange(2, 2);
  optim::OptimizerParamGroup group(strange->parameters());
  group.set_options(std::make_unique<optim::AdamOptions>(0.1));
  before->add_param_group(group);
  StateDict dict(StateUse::kSave);
  EXPECT_THROW(saved.state(dict), Exception);
}

// A program may turn momentum on after some steps.
TEST(TorchOptim, SgdWithoutMomentumKeepsNothing) {
  Net net = make_net();
  optim::SGD sgd(net->parameters(), optim::SGDOptions(0.1));
  TorchOptim saved(*net, sgd);
  const test::TemporaryFolder folder;
  save(folder.path(), net, saved);
  EXPECT_TRUE(sgd.state().empty());
  static_cast<optim::SGDOptions&>(sgd.param_groups()[0].options()).momentum(0.9);
  train(
      net, [&] { sgd.step(); }, 0, 2);
}

TEST(TorchOptim, RejectsWhatItCannotSave) {
  Net net = make_net();
  torch::nn::Linear other(2, 2);
  optim::LBFGS lbfgs(net->parameters(), optim::LBFGSOptions(1));
  optim::SGD dampened(net->parameters(), optim::SGDOptions(0.1).momentum(0.9).dampening(0.1));
  optim::SGD of_another(other->parameters(), optim::SGDOptions(0.1));
  const auto error_of = [&](optim::Optimizer& optimizer) -> std::string {
    try {
      TorchOptim(*net, optimizer);
    } catch (const Exception& error) {
      return error.what();
    }
    return "none";
  };
  EXPECT_THAT(error_of(lbfgs), HasSubstr("cannot be saved (hint: SGD, Adam, AdamW, Adagrad and RMSprop can)"));
  EXPECT_THAT(error_of(dampened), HasSubstr("SGD with a dampening cannot be saved"));
  EXPECT_THAT(error_of(of_another), HasSubstr("parameter 0 of the optimizer does not belong to the module"));
}

}  // namespace
}  // namespace tutti
