// A model under FullySharded, on any number of ranks, learns what one process learns from the whole batch.
#include "tutti/parallel/fully_sharded/fully_sharded.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>

#include <cmath>
#include <limits>
#include <ostream>

#include "tests/harness/checkpoints.h"
#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"
#include "tutti/comm/mesh_groups.h"
#include "tutti/parallel/data_parallel/precision/loss_scaler.h"
#include "tutti/parallel/fully_sharded/block_parameters.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/parallel/optim/torch_optim.h"
#include "tutti/parallel/recompute.h"
#include "tutti/tensor/module_state.h"

namespace tutti {
namespace {

constexpr std::int64_t kWide = 12;
constexpr int kSteps = 3, kBatchOfRank = 2;

class LayerImpl : public torch::nn::Module {
 public:
  LayerImpl()
      : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({kWide})))),
        up(register_module("up", torch::nn::Linear(kWide, 3 * kWide))),
        down(register_module("down", torch::nn::Linear(3 * kWide, kWide))) {}
  at::Tensor forward(const at::Tensor& x, double factor) {
    seen = up->weight.scalar_type();
    return x + down(at::gelu(up(norm(x)))) * factor;
  }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up, down;
  at::ScalarType seen = at::kDouble;  // of the weights, in the last forward()
};
TORCH_MODULE(Layer);

class TableImpl : public torch::nn::Module {
 public:
  explicit TableImpl(const at::Tensor& from) : weight(register_parameter("weight", from)) {}
  at::Tensor forward(const at::Tensor& x) { return at::linear(x, weight); }
  at::Tensor weight;
};
TORCH_MODULE(Table);

// A table, some layers, and a table, which may have the weight of the first.
class Tower : public torch::nn::Module {
 public:
  explicit Tower(bool is_tied = false)
      : embed(register_module("embed", Table(at::randn({kWide, kWide}) * 0.3))),
        head(register_module("head", Table(is_tied ? embed->weight : at::randn({kWide, kWide}) * 0.3))) {
    for (int i = 0; i < 3; ++i) layers->push_back(Layer());
    register_module("layers", layers);
    counter = register_buffer("counter", at::arange(3, at::kLong));
  }
  at::Tensor forward(const at::Tensor& x) {
    at::Tensor h = run_block(embed, x);
    for (const int k : path) {
      const auto layer = std::dynamic_pointer_cast<LayerImpl>(layers[std::size_t(k)]);
      const TensorFunction run = [layer](const at::Tensor& in) { return run_block(layer, in, 0.5); };
      h = again ? recompute(run, h) : run(h);
    }
    return direct ? head(h) : run_block(head, h);
  }
  LayerImpl& layer(int k) { return *layers[std::size_t(k)]->as<LayerImpl>(); }

  Table embed, head;
  torch::nn::ModuleList layers;
  at::Tensor counter;
  std::vector<int> path = {0, 1, 2};  // the layers that run
  bool again = false;                 // in backward()
  bool direct = false;                // the head is called without run_block()
};

std::shared_ptr<Tower> make_tower(bool tied = false, at::ScalarType type = at::kDouble) {
  at::manual_seed(3);
  const auto tower = std::make_shared<Tower>(tied);
  tower->to(type);  // keeps the tensors, and so a tie
  return tower;
}

// Of all ranks.
at::Tensor batch(int step, int ranks, at::ScalarType type = at::kDouble) {
  auto generator = at::detail::createCPUGenerator(std::uint64_t(step + 1));
  return at::randn({ranks * kBatchOfRank, kWide}, generator, at::kDouble).to(type);
}
at::Tensor part_of(const at::Tensor& whole, const Group& world) {
  return whole.narrow(0, world.rank() * kBatchOfRank, kBatchOfRank);
}
at::Tensor loss_of(const at::Tensor& out, const at::Tensor& x) { return (out - x.roll(1, 1)).square().mean(); }

std::string message_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Exception& e) {
    return e.what();
  }
  return "no error";
}
void check_says(const std::function<void()>& act, const std::string& expected) {
  const auto message = message_of(act);
  test::check(message.find(expected) != std::string::npos, message);
}

enum class Stepper { kShardedOptimizer, kTorch, kOptimizer };

struct Case {
  const char* name;
  int ranks;
  FullyShardedOptions options = {};
  Stepper stepper = Stepper::kShardedOptimizer;
  bool tied = false, again = false;
  int replicas = 1;  // HSDP
  double max_norm = 0;
  const char* transport = "";
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

const std::vector<std::string> kBlocks = {"embed", "layers.*", "head"};
const FullyShardedOptions kShared = {.blocks = kBlocks}, kGathered = {.blocks = kBlocks, .share_on_host = false},
                          kKept = {.blocks = kBlocks, .reshard_after_forward = false, .share_on_host = false},
                          kRootOnly = {.share_on_host = false},
                          kLayersOnly = {.blocks = {"layers.*"}, .prefetch = 2, .share_on_host = false};

class EqualsOneProcess : public testing::TestWithParam<Case> {};
INSTANTIATE_TEST_SUITE_P(
    FullySharded, EqualsOneProcess,
    testing::Values(Case{"alone", 1, kShared}, Case{"shared", 2, kShared}, Case{"gathered", 3, kGathered},
                    Case{"four", 4, kGathered}, Case{"one_block", 2, kRootOnly}, Case{"kept_after_forward", 2, kKept},
                    Case{"root_and_layers", 3, kLayersOnly},
                    Case{"over_links", 3, kShared, Stepper::kShardedOptimizer, false, false, 1, 0, "tcp"},
                    Case{"tied", 2, kShared, Stepper::kShardedOptimizer, true},
                    Case{"tied_gathered", 3, kGathered, Stepper::kTorch, true},
                    Case{"recomputed", 2, kGathered, Stepper::kShardedOptimizer, false, true},
                    Case{"recomputed_shared", 2, kShared, Stepper::kShardedOptimizer, false, true},
                    Case{"torch_optim", 2, kShared, Stepper::kTorch, false, false, 1, 0.5},
                    Case{"torch_optim_gathered", 3, kGathered, Stepper::kTorch},
                    Case{"optimizer", 2, kGathered, Stepper::kOptimizer},
                    Case{"hybrid", 4, kGathered, Stepper::kShardedOptimizer, false, false, 2, 0.5},
                    Case{"hybrid_torch_optim", 4, kShared, Stepper::kTorch, false, false, 2}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(EqualsOneProcess, InLossesAndWeights) {
  const auto& param = GetParam();
  const auto outcomes = test::run_processes(
      param.ranks,
      [&](Group& world) {
        at::set_num_threads(1);
        const auto plain = make_tower(param.tied), tower = make_tower(param.tied);
        if (world.rank() > 0)  // rank 0's weights and buffers count
          for (auto& parameter : tower->parameters()) parameter.detach().zero_();
        if (world.rank() > 0) tower->counter.zero_();
        tower->again = param.again;
        torch::optim::AdamW reference(without_repeats(plain->parameters()), torch::optim::AdamWOptions(0.02));

        FullyShardedOptions options = param.options;
        Group shard = world;
        if (param.replicas > 1) {
          const Mesh mesh({{"replicate", param.replicas}, {"shard", world.size() / param.replicas}});
          const auto groups = split(world, mesh).or_throw();
          shard = groups.along("shard");
          options.replicate = groups.along("replicate");
        }
        {
          FullySharded sharded(tower, shard, options);
          std::optional<ShardedOptimizer> stage3;
          std::optional<torch::optim::AdamW> adamw;
          std::optional<Optimizer> optimizer;
          const AdamWOptions rule{.lr = 0.02};
          if (param.stepper == Stepper::kTorch)
            adamw.emplace(sharded.parameters(), torch::optim::AdamWOptions(0.02));
          else if (param.stepper == Stepper::kOptimizer)
            optimizer.emplace(sharded.named_parameters(), rule);
          else
            stage3.emplace(sharded, rule);
          for (int step = 0; step < kSteps; ++step) {
            const auto whole = batch(step, world.size()), mine = part_of(whole, world);
            reference.zero_grad();
            const auto expected = loss_of(plain->forward(whole), whole);
            expected.backward();
            if (param.max_norm > 0) clip_grad_norm(*plain, param.max_norm);
            reference.step();

            const auto loss = loss_of(sharded.forward(mine), mine);
            loss.backward();
            if (stage3) {
              if (param.max_norm > 0) stage3->clip_grad_norm(param.max_norm);
              stage3->step();
              stage3->zero_grad();
            } else {
              sharded.finish();
              if (param.max_norm > 0) sharded.clip_grad_norm(param.max_norm);
              if (adamw)
                adamw->step();
              else
                optimizer->step();
              sharded.zero_grad();
            }
            const double mean = all_reduce(world, loss.item<double>()) / world.size();
            test::check(std::abs(mean - expected.item<double>()) < 1e-10, "step ", step, ": loss ", mean, " and ",
                        expected.item<double>());
            const at::NoGradGuard no_grad;
            (void)sharded.forward(mine);  // an evaluation in between
          }
        }
        // The wrapper has ended: the model is whole.
        const auto found = tower->named_parameters(), expected = plain->named_parameters();
        for (const auto& item : expected) {
          const double apart = (found[item.key()] - item.value()).abs().max().item<double>();
          test::check(apart < 1e-10, item.key(), " differs by ", apart);
        }
        test::check(at::equal(tower->counter, at::arange(3, at::kLong)), "buffers are not rank 0's");
        tower->forward(at::ones({1, kWide}, at::kDouble)).sum().backward();
      },
      {.transport = param.transport});
  EXPECT_EQ(test::describe(outcomes), "");
}

// Each runs on two ranks, once with shared weights and once gathered.
class FullyShardedOf2 : public testing::TestWithParam<bool> {
 protected:
  void on_ranks(const test::RankBody& body) {
    const auto outcomes = test::run_processes(2, [&](Group& world) {
      at::set_num_threads(1);
      body(world);
    });
    EXPECT_EQ(test::describe(outcomes), "");
  }
  FullyShardedOptions options(FullyShardedOptions made = {}) const {
    made.blocks = kBlocks;
    made.share_on_host = GetParam();
    return made;
  }
};
INSTANTIATE_TEST_SUITE_P(, FullyShardedOf2, testing::Bool(),
                         [](const auto& info) { return info.param ? "shared" : "gathered"; });

TEST_P(FullyShardedOf2, ComputesInBf16AndKeepsWeightsInF32) {
  on_ranks([&](Group& world) {
    const auto tower = make_tower(false, at::kFloat), plain = make_tower(false, at::kFloat);
    FullySharded sharded(
        tower, world,
        options({.mixed_precision = {
                     .param_dtype = DType::kBF16, .reduce_dtype = DType::kF32, .output_dtype = DType::kF32}}));
    test::check(sharded.shared() == GetParam(), "shared ", sharded.shared());
    // A step is less than half a unit in the last place of bf16: only f32 weights add them up.
    ShardedOptimizer optimizer(sharded, SgdOptions{.lr = 1e-4});
    const auto before = plain->head->weight.detach().clone();
    for (int step = 0; step < 20; ++step) {
      const auto x = batch(0, world.size(), at::kFloat), mine = part_of(x, world);
      const auto out = sharded.forward(mine);
      test::check(out.scalar_type() == at::kFloat, "output");
      test::check(tower->layer(1).seen == at::kBFloat16, "the layer did not compute in bf16");
      loss_of(out, mine).backward();
      optimizer.step();
      optimizer.zero_grad();
      loss_of(plain->forward(x), x).backward();
      for (auto& parameter : plain->parameters()) {
        parameter.detach().sub_(parameter.grad(), 1e-4);
        parameter.mutable_grad() = at::Tensor();
      }
    }
    {
      const auto whole = sharded.whole();
      const at::Tensor found = tower->head->weight.detach(), expected = plain->head->weight.detach();
      test::check(found.scalar_type() == at::kFloat, "whole() does not show f32");
      const double moved = (expected - before).abs().max().item<double>(),
                   apart = (found - expected).abs().max().item<double>();
      test::check(moved > 0 && apart < 0.1 * moved, "moved ", moved, ", apart ", apart);
      tower->head->weight.detach().fill_(0.25);
    }
    // What was written to the whole stays, and hooks still come.
    const at::Tensor mine = at::ones({1, kWide});
    const auto out = sharded.forward(mine);
    test::check(out.std().item<float>() < 1e-3, "weights are not what was written");
    out.sum().backward();
    optimizer.step();
    const auto state = sharded.own_state();
    test::check(state.front().values.scalar_type() == at::kFloat, "state is not f32");
  });
}

TEST_P(FullyShardedOf2, ANaNIsNamedAndNoWeightIsStepped) {
  on_ranks([&](Group& world) {
    for (const auto check : {FiniteCheck::kThrow, FiniteCheck::kReport}) {
      for (const bool torch_optim : {false, true}) {
        const auto tower = make_tower();
        const auto before = tower->head->weight.detach().clone();
        auto bias = tower->layer(1).up->bias;
        FullySharded sharded(tower, world, options({.finite_check = check}));
        std::optional<ShardedOptimizer> optimizer;
        std::optional<torch::optim::AdamW> adamw;
        if (torch_optim)
          adamw.emplace(sharded.parameters());
        else
          optimizer.emplace(sharded, AdamOptions{});
        const auto step = [&] {
          if (torch_optim) {
            sharded.finish();
            adamw->step();
          } else {
            optimizer->step();
          }
        };
        const at::Tensor mine = part_of(batch(0, 2), world);
        const auto hook = bias.register_hook([&](const at::Tensor& gradient) {
          return world.rank() == 1 ? gradient * std::numeric_limits<double>::quiet_NaN() : gradient;
        });
        loss_of(sharded.forward(mine), mine).backward();
        const std::string expected = "the gradient of layers.1.up.bias has a NaN or an infinity on rank 1";
        if (check == FiniteCheck::kThrow) {
          check_says(step, expected);
        } else {
          step();
          test::check(sharded.non_finite() && sharded.non_finite()->parameter == "layers.1.up.bias" &&
                          sharded.non_finite()->rank == 1,
                      "not reported");
        }
        bias.remove_hook(hook);
        {
          const auto whole = sharded.whole();
          test::check(at::equal(tower->head->weight, before), "a weight was stepped");
        }
        loss_of(sharded.forward(mine), mine).backward();
        step();
        test::check(!sharded.non_finite(), "still not finite");
        const auto whole = sharded.whole();
        test::check(!at::equal(tower->head->weight, before), "the next step did nothing");
      }
    }
  });
}

// A scale above 1000 makes an infinity on one rank: that step is skipped on both, and the next one is that of an
// unscaled loss.
TEST_P(FullyShardedOf2, ALossScalerSkipsAStepWithAnInfinity) {
  on_ranks([&](Group& world) {
    const auto tower = make_tower(false, at::kFloat), plain = make_tower(false, at::kFloat);
    const at::Tensor mine = part_of(batch(0, 2, at::kFloat), world);
    FullySharded unscaled(plain, world, options());
    ShardedOptimizer reference(unscaled, SgdOptions{.lr = 0.1});
    loss_of(unscaled.forward(mine), mine).backward();
    reference.step();

    auto bias = tower->layer(1).up->bias;
    FullySharded sharded(tower, world, options({.finite_check = FiniteCheck::kReport}));
    ShardedOptimizer optimizer(sharded, SgdOptions{.lr = 0.1});
    LossScaler scaler(sharded, {.backoff_factor = 0x1p-8});
    bias.register_hook([&](const at::Tensor& gradient) {
      const bool overflows = world.rank() == 1 && scaler.scale() > 1000;
      return overflows ? gradient * std::numeric_limits<float>::infinity() : gradient;
    });
    for (const bool expected : {false, true}) {
      scaler.scale(loss_of(sharded.forward(mine), mine)).backward();
      test::check(scaler.step(optimizer) == expected, "stepped ", !expected);
      scaler.update();
      optimizer.zero_grad();
    }
    test::check(scaler.scale() == 256, "scale ", scaler.scale());
    unscaled.unshard();
    sharded.unshard();
    test::check(at::allclose(tower->head->weight, plain->head->weight, 1e-5, 1e-6), "another step");
    check_says([&] { LossScaler without(unscaled); }, "finite_check has to be kReport");
  });
}

TEST_P(FullyShardedOf2, RanksThatRunDifferentBlocksGetAnError) {
  on_ranks([&](Group& world) {
    const auto tower = make_tower();
    FullySharded sharded(tower, world, options({.prefetch = 0}));
    ShardedOptimizer optimizer(sharded, SgdOptions{});
    tower->path = world.rank() == 0 ? std::vector{0, 1} : std::vector{1, 0};
    const at::Tensor mine = part_of(batch(0, 2), world);
    check_says(
        [&] {
          loss_of(sharded.forward(mine), mine).backward();
          optimizer.step();
        },
        "the ranks did not run the same blocks in the same order in this step");
  });
}

TEST_P(FullyShardedOf2, AnExceptionOnOneRankEndsBothWithoutAWait) {
  on_ranks([&](Group& world) {
    const auto tower = make_tower();
    const auto train = [&] {
      FullySharded sharded(tower, world, options());
      ShardedOptimizer optimizer(sharded, SgdOptions{});
      const at::Tensor mine = part_of(batch(0, 2), world);
      const auto loss = loss_of(sharded.forward(mine), mine);
      if (world.rank() == 1) throw Exception(invalid_argument("no more data"));
      loss.backward();
      optimizer.step();
      optimizer.zero_grad();
      loss_of(sharded.forward(mine), mine).backward();
      optimizer.step();
    };
    const auto message = message_of(train);
    test::check(world.rank() == 1 ? message.find("no more data") != std::string::npos : message != "no error", message);
    test::check(tower->head->weight.numel() == 0, "parameters of a run that failed are not empty");
  });
}

TEST_P(FullyShardedOf2, UnshardEndsShardingAndShardsMoveToAnotherModel) {
  on_ranks([&](Group& world) {
    const auto tower = make_tower(), other = make_tower();
    const auto expected = tower->head->weight.detach().clone();
    for (auto& parameter : other->parameters()) parameter.detach().zero_();
    FullySharded from(tower, world, options()), to(other, world, options({.reshard_after_forward = false}));
    copy_state(from.own_state(), to.own_state());
    const at::Tensor mine = part_of(batch(0, 2), world);
    test::check(at::equal(from.forward(mine), to.forward(mine)), "the shards did not arrive");
    from.unshard();
    test::check(at::equal(tower->head->weight, expected), "weights are not whole");
    const auto out = from.forward(mine);
    out.sum().backward();
    test::check(tower->head->weight.grad().defined() && out.equal(to.forward(mine)), "not an ordinary module");
  });
}

TEST(FullySharded, MistakesGetAMessage) {
  const auto outcomes = test::run_processes(1, [](Group& world) {
    const auto made = [&](FullyShardedOptions options, const std::string& expected) {
      check_says([&] { FullySharded(make_tower(), world, options); }, expected);
    };
    made({.blocks = {"layer.*"}}, "no module is named \"layer.*\"");
    made({.blocks = {"layers.*", "layers.*.up"}}, "block layers.0.up is inside block layers.0; name one of the two");
    made({.prefetch = -1}, "prefetch is -1");
    made({.finite_check = FiniteCheck::kInReduction}, "finite_check is kThrow, kReport or kOff");
    made({.mixed_precision = {.reduce_dtype = DType::kI8}}, "reduce_dtype is i8; expected f32, bf16 or f16");
    check_says([&] { FullySharded(torch::nn::Sequential(torch::nn::Tanh()), world); },
               "the model has no parameter that requires a gradient");
    const auto uneven = make_tower();
    uneven->layer(0).down->to(at::kFloat);
    check_says([&] { FullySharded(uneven, world, {.blocks = {"layers.*"}}); },
               "block layers.0 has parameters of different types, layers.0.norm.weight f64");

    const auto tower = make_tower();
    FullySharded sharded(tower, world, {.blocks = {"layers.*"}});
    ShardedOptimizer optimizer(sharded, SgdOptions{});
    check_says([&] { ShardedOptimizer second(sharded, SgdOptions{}); }, "has an optimizer already");
    const at::Tensor x = batch(0, 1);
    const auto direct = make_tower();
    direct->direct = true;
    FullySharded without(direct, world, {.blocks = {"head"}, .share_on_host = false});
    check_says([&] { without.forward(x); },
               "the weights of block head are used, and run_block() was not called for it");
    // Last: it ends the group.
    check_says([&] { optimizer.step(); }, "the model has no gradient of this step");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(FullySharded, ForwardBetweenClippingAndTheStepIsRejected) {
  const auto outcomes = test::run_processes(1, [](Group& world) {
    FullySharded sharded(make_tower(), world);
    ShardedOptimizer optimizer(sharded, SgdOptions{});
    const at::Tensor x = batch(0, 1);
    sharded.forward(x).sum().backward();
    optimizer.clip_grad_norm(1);
    check_says([&] { sharded.forward(x); }, "runs between clip_grad_norm() and step()");
    optimizer.step();
    sharded.forward(x).sum().backward();
    optimizer.step();
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(FullySharded, ABatchOfNoSamplesAndOptionsThatDifferReachAllRanks) {
  const auto outcomes = test::run_processes(2, [](Group& world) {
    torch::nn::Sequential model(torch::nn::Linear(3, 3));
    check_says([&] { FullySharded(model, world, {.prefetch = world.rank()}); },
               "the ranks gave FullySharded different options: prefetch is 0 on rank 0, but 1 on rank 1");
    FullySharded sharded(model, world);
    check_says(
        [&] {
          sharded.forward(at::ones({world.rank() == 1 ? 0 : 2, 3})).sum().backward();
          ShardedOptimizer(sharded, SgdOptions{}).step();
        },
        "rank 1: FullySharded: forward() was given a batch of no samples, f32[0, 3]");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

class ShardsInACheckpoint : public testing::TestWithParam<Stepper> {
 protected:
  static constexpr int kAll = 6;  // a batch for 2, 3 or 6 ranks

  // A step from the batch of that number, which any number of ranks share.
  template <class Model, class Act>
  static void step(Model& model, const Group& world, int number, const Act& act) {
    const at::Tensor whole = batch(number, kAll), mine = whole.chunk(world.size())[world.rank()];
    loss_of(model.forward(mine), mine).backward();
    act();
  }
};
INSTANTIATE_TEST_SUITE_P(FullySharded, ShardsInACheckpoint, testing::Values(Stepper::kTorch, Stepper::kOptimizer),
                         [](const auto& info) { return info.param == Stepper::kTorch ? "TorchOptim" : "Optimizer"; });

// Two ranks have as many elements each, so their shards have the same shape.
TEST_P(ShardsInACheckpoint, GoToAnotherNumberOfRanksAndToOneProcess) {
  const test::TemporaryFolder folder;
  const std::string checkpoint = folder.path() + "/step-2";
  const auto train = [&](Group& world, bool saves) {
    at::set_num_threads(1);
    const auto tower = make_tower();
    FullySharded sharded(tower, world, kShared);
    torch::optim::AdamW adamw(sharded.parameters(), torch::optim::AdamWOptions(0.02));
    Optimizer optimizer(sharded.parameters(), AdamWOptions{.lr = 0.02});
    TorchOptim torch_state(*tower, adamw);
    const auto add = [&](StateDict& dict) {
      dict.add("model", sharded);
      GetParam() == Stepper::kTorch ? dict.add("optimizer", torch_state) : dict.add("optimizer", optimizer);
    };
    const auto steps = [&](int from, int to) {
      for (int k = from; k < to; ++k)
        step(sharded, world, k, [&] {
          sharded.finish();
          GetParam() == Stepper::kTorch ? (void)adamw.step() : optimizer.step();
          sharded.zero_grad();
        });
    };
    if (saves) {
      steps(0, 2);
      StateDict dict(StateUse::kSave);
      add(dict);
      save_checkpoint(world, checkpoint, dict).or_throw();
    } else {
      StateDict dict(StateUse::kLoad);
      add(dict);
      dict.load(world, CheckpointReader::open(checkpoint).or_throw()).or_throw();
    }
    steps(2, 4);
    sharded.unshard();
    // One process goes on from the same checkpoint.
    const auto alone = make_tower();
    Optimizer whole(*alone, AdamWOptions{.lr = 0.02});
    StateDict dict(StateUse::kLoad);
    dict.add("model", *alone);
    dict.add("optimizer", whole);
    dict.load(Group(), CheckpointReader::open(checkpoint).or_throw()).or_throw();
    for (int k = 2; k < 4; ++k) {
      const at::Tensor x = batch(k, kAll);
      loss_of(alone->forward(x), x).backward();
      whole.step();
      whole.zero_grad();
    }
    const auto found = tower->parameters(), expected = alone->parameters();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const double apart = (found[i] - expected[i]).abs().max().item<double>();
      test::check(apart < 1e-10, "parameter ", i, " differs by ", apart);
    }
  };
  EXPECT_EQ(test::describe(test::run_processes(2, [&](Group& world) { train(world, true); })), "");
  EXPECT_EQ(test::describe(test::run_processes(3, [&](Group& world) { train(world, false); })), "");
}

TEST_P(FullyShardedOf2, AnOptimizerOfShardsClipsByTheNormOfAllRanks) {
  on_ranks([&](Group& world) {
    const auto tower = make_tower();
    FullySharded sharded(tower, world, options());
    Optimizer optimizer(sharded.parameters(), SgdOptions{.lr = 1});
    const at::Tensor mine = part_of(batch(0, 2), world);
    loss_of(sharded.forward(mine), mine).backward();
    sharded.finish();
    const auto norm = optimizer.clip_grad_norm(1e-3), of_all = sharded.clip_grad_norm(1e9);
    test::check(norm.norm == of_all.norm && norm.norm > 1e-3, "norms ", norm.norm, " and ", of_all.norm);
  });
}

TEST(BlockParameters, OfTwoBlocksAreTheRoots) {
  const auto tower = make_tower(true);
  const auto blocks = fully_sharded::block_parameters(*tower, kBlocks);
  ASSERT_EQ(blocks.size(), 6u);
  EXPECT_EQ(blocks[0].parameters.size(), 1u);
  EXPECT_EQ(blocks[0].parameters[0].name, "embed.weight");
  EXPECT_EQ(blocks[1].name, "embed");
  EXPECT_TRUE(blocks[1].parameters.empty());
  std::size_t in_layers = 0;
  for (const auto& block : blocks)
    if (block.name.starts_with("layers.")) in_layers += block.parameters.size();
  EXPECT_EQ(in_layers, 18u);
}

}  // namespace
}  // namespace tutti
