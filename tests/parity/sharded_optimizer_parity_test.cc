// ShardedOptimizer equals an Optimizer after DataParallel::finish(): to the bit where the ranks share memory, else to
// the rounding of the sums; and each rank keeps its part of the state only, be parameters large or small.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <limits>
#include <ostream>
#include <tuple>

#include "tests/harness/ranks.h"
#include "tutti/base/file.h"
#include "tutti/checkpoint/io/reader.h"
#include "tutti/checkpoint/io/writer.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/tensor/module_state.h"
#include "tutti/tensor/caching_allocator.h"

namespace tutti {
namespace {

constexpr int kSteps = 4;
constexpr std::int64_t kBatch = 6;  // of a rank

// Odd sizes: no part divides, and tails differ in length. The first two weights are large enough for LibTorch to make
// their gradients in the group's memory.
class Net : public torch::nn::Module {
 public:
  Net()
      : in_(register_module("in", torch::nn::Linear(97, 301))),
        sometimes_(register_module("sometimes", torch::nn::Linear(301, 301))),
        out_(register_module("out", torch::nn::Linear(301, 3))) {}
  at::Tensor forward(const at::Tensor& x, bool with_all) {
    at::Tensor hidden = at::tanh(in_->forward(x));
    if (with_all) hidden = at::tanh(sometimes_->forward(hidden));
    return out_->forward(hidden);
  }

 private:
  torch::nn::Linear in_, sometimes_, out_;
};

struct Case {
  const char* name;
  int ranks;
  UpdateRule rule = AdamOptions{.lr = 0.02};
  int stage = 1;
  at::ScalarType type = at::kFloat;
  DataParallelOptions parallel = {.in_place_bytes = 4096};
  test::WorldOptions world = {};
  double tolerance = 0;
  double max_norm = 0;  // 0: not clipped
  double limit = 0;     // likewise
  std::vector<ParameterGroup> groups = {};
  bool same_bits = true;
  bool heap = true;  // gradients are where peers read them
};
Case without_heap(Case value) { return value.heap = false, value; }
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

std::shared_ptr<Net> make_net(at::ScalarType type) {
  at::manual_seed(11);
  auto net = std::make_shared<Net>();
  net->to(type);
  return net;
}

// Every third step leaves a layer out on all ranks, every other one on rank 0 alone, where that is allowed.
template <class Step>
void train(const Group& world, DataParallel<Net>& ddp, const Case& param, const Step& step) {
  auto generator = at::detail::createCPUGenerator(std::uint64_t(world.rank() + 1));
  for (int k = 0; k < kSteps; ++k) {
    const bool leave_out = param.parallel.find_unused_parameters && (k % 3 == 2 || (k % 2 == 1 && world.rank() == 0));
    const auto x = at::randn({kBatch, 97}, generator, at::kDouble).to(param.type);
    ddp.forward(x, !leave_out).square().mean().backward();
    step();
  }
}

template <class Optimizer>
void clip_and_step(Optimizer& optimizer, const Case& param, std::vector<double>& norms) {
  if (param.max_norm > 0) norms.push_back(optimizer.clip_grad_norm(param.max_norm).norm);
  if (param.limit > 0) optimizer.clip_grad_value(param.limit);
  optimizer.step();
  optimizer.zero_grad();
}

class ShardedOptimizerParity : public testing::TestWithParam<Case> {};

TEST_P(ShardedOptimizerParity, EqualsAnOptimizer) {
  const auto& param = GetParam();
  const auto outcomes = test::run_processes(
      param.ranks,
      [&](Group& world) {
        at::set_num_threads(1);
        std::optional<HeapTensors> heap;
        if (param.heap) heap.emplace(world);
        const auto plain = make_net(param.type), sharded = make_net(param.type);
        std::size_t plain_bytes = 0, sharded_bytes = 0;
        std::vector<double> plain_norms, sharded_norms;
        std::vector<StatePart> plain_state, sharded_state;
        {
          DataParallel ddp(plain, world, param.parallel);
          Optimizer optimizer(*plain, param.rule, param.groups);
          train(world, ddp, param, [&] {
            ddp.finish();
            clip_and_step(optimizer, param, plain_norms);
          });
          plain_bytes = optimizer.state_bytes();
          plain_state = optimizer.own_state();
        }
        {
          DataParallel ddp(sharded, world, param.parallel);
          ShardedOptimizer optimizer(ddp, param.rule,
                                     {.stage = param.stage, .groups = param.groups, .same_bits = param.same_bits});
          train(world, ddp, param, [&] { clip_and_step(optimizer, param, sharded_norms); });
          sharded_bytes = optimizer.state_bytes();
          sharded_state = optimizer.full_state();
        }
        const auto near = [&](const at::Tensor& found, const at::Tensor& expected, const std::string& name) {
          const double apart = (found - expected).abs().max().item<double>();
          test::check(apart <= param.tolerance, name, " differs by ", apart * 1e12, "e-12");
        };
        const auto found = sharded->named_parameters(), expected = plain->named_parameters();
        for (const auto& item : expected) near(found[item.key()], item.value(), item.key());
        test::check(sharded_state.size() == plain_state.size(), "states ", sharded_state.size(), " and ",
                    plain_state.size());
        for (std::size_t k = 0; k < plain_state.size(); ++k) {
          test::check(sharded_state[k].state == plain_state[k].state, sharded_state[k].state);
          near(sharded_state[k].values, plain_state[k].values,
               plain_state[k].state + " of " + plain_state[k].parameter);
        }
        for (std::size_t k = 0; k < plain_norms.size(); ++k)
          test::check(std::abs(sharded_norms[k] / plain_norms[k] - 1) < 1e-12, "norm ", sharded_norms[k], " and ",
                      plain_norms[k]);
        const std::size_t tails = std::size_t(world.size()) * 6 * 128 * 2;  // of six parameters, two kinds of state
        test::check(sharded_bytes <= plain_bytes / std::size_t(world.size()) + tails, "the state takes ", sharded_bytes,
                    " bytes, of an Optimizer ", plain_bytes);
      },
      param.world);
  EXPECT_EQ(test::describe(outcomes), "");
}

const SgdOptions kMomentum = {.lr = 0.1, .momentum = 0.9};
const SgdOptions kNesterov = {.lr = 0.1, .momentum = 0.9, .weight_decay = 0.01, .nesterov = true};
const DataParallelOptions kLargeFrom4K = {.in_place_bytes = 4096}, kAllLarge = {.in_place_bytes = 0},
                          kOverlapped = {.in_place_bytes = 4096, .overlap = Overlap::kOn},
                          kUnused = {.in_place_bytes = 4096, .find_unused_parameters = true},
                          kViews = {.in_place_bytes = std::size_t(1) << 40, .gradient_as_bucket_view = true};
const std::vector<ParameterGroup> kGroups = {
    {.names = {"in.bias", "out.bias"}, .rule = AdamOptions{.lr = 0.1, .weight_decay = 0.1}},
    {.names = {"sometimes.weight"}, .rule = kMomentum}};
const test::WorldOptions kTcp = {.transport = "tcp"};

INSTANTIATE_TEST_SUITE_P(
    , ShardedOptimizerParity,
    testing::Values(
        Case{"alone", 1}, Case{"two", 2}, Case{"three", 3}, Case{"four", 4},
        Case{"three_f64", 3, AdamWOptions{}, 1, at::kDouble}, Case{"momentum", 2, kMomentum},
        Case{"plain_sgd", 2, SgdOptions{}}, Case{"nesterov_and_decay", 2, kNesterov},
        Case{"adagrad", 2, AdagradOptions{.initial_accumulator_value = 0.1}},
        Case{"amsgrad", 2, AdamOptions{.lr = 0.02, .amsgrad = true}},
        Case{"lion", 3, LionOptions{.lr = 0.01, .weight_decay = 0.1}},
        Case{"all_large_even_biases", 4, AdamOptions{}, 1, at::kFloat, kAllLarge},
        Case{"overlapped", 2, kMomentum, 1, at::kFloat, kOverlapped},
        Case{"unused", 3, AdamOptions{}, 1, at::kFloat, kUnused}, Case{"views", 2, kMomentum, 1, at::kFloat, kViews},
        without_heap({"private_gradients", 3, kMomentum, 1, at::kDouble}),
        Case{"over_links", 3, kMomentum, 1, at::kDouble, kLargeFrom4K, kTcp},
        Case{"over_links_of_two", 2, AdamOptions{}, 1, at::kFloat, kLargeFrom4K, kTcp},
        Case{"over_links_of_five", 5, AdamOptions{}, 1, at::kFloat, kLargeFrom4K, kTcp},
        Case{"over_links_unused", 3, AdamOptions{}, 1, at::kFloat, kUnused, kTcp},
        Case{"over_links_views", 3, AdamOptions{}, 1, at::kFloat, kViews, kTcp},
        Case{"over_links_clipped", 3, AdamOptions{}, 1, at::kFloat, kLargeFrom4K, kTcp, 0, 0.05, 1e-2},
        Case{"over_links_rounded", 3, kMomentum, 1, at::kDouble, kLargeFrom4K, kTcp, 1e-13, 0, 0, {}, false},
        Case{"clipped", 3, AdamOptions{.lr = 0.02}, 1, at::kFloat, kLargeFrom4K, {}, 0, 0.05},
        Case{"clipped_by_value", 2, kMomentum, 1, at::kFloat, kLargeFrom4K, {}, 0, 0, 1e-3},
        Case{"clipped_over_links", 2, kMomentum, 1, at::kDouble, kLargeFrom4K, kTcp, 1e-13, 0.05, 1e-2},
        Case{"groups", 3, AdamOptions{}, 1, at::kFloat, kLargeFrom4K, {}, 0, 0, 0, kGroups},
        Case{"stage2_groups", 2, AdamOptions{}, 2, at::kFloat, kLargeFrom4K, {}, 0, 0.05, 0, kGroups},
        Case{"stage2_alone", 1, AdamOptions{}, 2}, Case{"stage2", 2, AdamOptions{.lr = 0.02}, 2},
        Case{"stage2_three", 3, kNesterov, 2, at::kDouble},
        Case{"stage2_unused", 3, AdamOptions{}, 2, at::kFloat, kUnused},
        Case{"stage2_overlapped", 2, AdamOptions{}, 2, at::kFloat, kOverlapped},
        Case{"stage2_views", 2, AdamOptions{}, 2, at::kFloat, kViews},
        without_heap({"stage2_private_gradients", 3, kMomentum, 2, at::kDouble}),
        Case{"stage2_over_links", 3, kMomentum, 2, at::kDouble, kLargeFrom4K, kTcp},
        Case{"stage2_over_links_overlapped", 3, AdamOptions{}, 2, at::kFloat, kOverlapped, kTcp},
        Case{"stage2_over_links_unused", 4, AdamOptions{}, 2, at::kFloat, kUnused, kTcp},
        Case{"stage2_over_links_rounded", 3, kMomentum, 2, at::kDouble, kLargeFrom4K, kTcp, 1e-13, 0, 0, {}, false},
        Case{"stage2_clipped", 3, AdamOptions{.lr = 0.02}, 2, at::kFloat, kLargeFrom4K, {}, 0, 0.05, 1e-2}),
    [](const auto& info) { return std::string(info.param.name); });

TEST(ShardedOptimizer, WhatIsTooEarlyOrTooMuchGetsASentence) {
  const auto outcomes = test::run_processes(1, [](Group& world) {
    const auto net = make_net(at::kFloat);
    DataParallel ddp(net, world);
    ShardedOptimizer optimizer(ddp, SgdOptions{});
    const auto words_of = [](const auto& act) -> std::string {
      try {
        act();
      } catch (const Exception& e) {
        return e.what();
      }
      return "";
    };
    const auto says = [&](const auto& act, const char* expected) {
      const std::string words = words_of(act);
      test::check(words.find(expected) != std::string::npos, words);
    };
    says([&] { ShardedOptimizer second(ddp, SgdOptions{}); }, "has a sharded optimizer already");
    const std::string me = "rank " + std::to_string(world.rank()) + ": ";
    says([&] { optimizer.clip_grad_norm(-1); },
         (me + "clip_grad_norm: max_norm is -1; expected a number that is not negative (hint: leave the call out")
             .c_str());
    says([&] { optimizer.clip_grad_value(-1); }, "clip_grad_value: limit is -1");
    const auto other = make_net(at::kFloat), third = make_net(at::kHalf);
    DataParallel ddp2(other, world), ddp3(third, world);
    says([&] { ShardedOptimizer(ddp2, SgdOptions{}, {.stage = 3}); }, "stage is 3; expected 1 or 2");
    says([&] { ShardedOptimizer(ddp2, SgdOptions{.lr = -1}); }, "Sgd: lr is -1");
    says([&] { ShardedOptimizer(ddp3, SgdOptions{}); },
         "Sgd: parameter in.weight is f16[301, 97]; expected f32 or f64");
    ShardedOptimizer(ddp2, SgdOptions{});  // after a refusal there is none
    says([&] { optimizer.step(); }, "found no gradient of this step");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// One rank has a NaN in one gradient: all ranks tell the same, leave the step out, and go on.
class NotFinite : public testing::TestWithParam<std::tuple<int, const char*>> {};
INSTANTIATE_TEST_SUITE_P(, NotFinite, testing::Combine(testing::Values(1, 2), testing::Values("shm", "tcp")),
                         [](const auto& info) {
                           return "stage" + std::to_string(std::get<0>(info.param)) + "_" + std::get<1>(info.param);
                         });

TEST_P(NotFinite, TheRankAndTheParameterAreNamedAlikeOnAllRanks) {
  const auto [stage, transport] = GetParam();
  const std::string way = transport;
  const auto outcomes = test::run_processes(
      3,
      [&, stage = stage](Group& world) {
        at::set_num_threads(1);
        for (const std::string where : {"sometimes.weight", "out.bias", "in.bias"}) {
          const auto net = make_net(at::kFloat);
          DataParallel ddp(net, world, {.in_place_bytes = 4096});
          ShardedOptimizer optimizer(ddp, AdamOptions{}, {.stage = stage});
          for (std::int64_t place : {0, 2, 200}) {
            auto parameter = net->named_parameters()[where];
            if (place >= parameter.numel()) continue;
            const auto before = parameter.detach().clone();
            // A gradient that is not finite, of a loss that is.
            const bool bad = world.rank() == 1;
            auto poison = at::zeros_like(parameter.detach());
            if (bad) poison.view({-1})[place] = std::numeric_limits<float>::quiet_NaN();
            const auto hook =
                parameter.register_hook([poison](const at::Tensor& gradient) { return gradient + poison; });
            ddp.forward(at::ones({kBatch, 97}), true).square().mean().backward();
            parameter.remove_hook(hook);
            const auto norm = optimizer.clip_grad_norm(1.0);
            test::check(norm.non_finite == "the gradient of " + where + " has a NaN or an infinity on rank 1",
                        norm.non_finite);
            optimizer.zero_grad();
            test::check(at::equal(parameter, before), "stepped");
          }
          ddp.forward(at::ones({kBatch, 97}), true).square().mean().backward();
          const auto norm = optimizer.clip_grad_norm(1.0);
          test::check(norm.finite() && std::isfinite(norm.norm), norm.non_finite);
          optimizer.step();
        }
      },
      {.transport = way == "tcp" ? "tcp" : ""});
  EXPECT_EQ(test::describe(outcomes), "");
}

// Saved by three ranks in stage 1, read by two in stage 2, which then go on as if nothing had been.
TEST(ShardedOptimizer, StateGoesThroughACheckpointToAnotherNumberOfRanks) {
  const std::string folder = testing::TempDir() + "sharded_optimizer_" + std::to_string(::getpid());
  const auto step = [](Net& net, DataParallel<Net>& ddp, ShardedOptimizer& optimizer, int k) {
    (void)net;
    ddp.forward(at::full({kBatch, 97}, 0.1 * (k + 1), at::kDouble), true).square().mean().backward();
    optimizer.step();
    optimizer.zero_grad();
  };
  const auto digest = [](Net& net) {
    double sum = 0;
    for (const auto& parameter : net.parameters()) sum += parameter.square().sum().item<double>();
    return sum;
  };
  const DataParallelOptions options = {.in_place_bytes = 4096};
  std::vector<test::Outcome> outcomes = test::run_processes(3, [&](Group& world) {
    at::set_num_threads(1);
    const auto net = make_net(at::kDouble);
    DataParallel ddp(net, world, options);
    ShardedOptimizer optimizer(ddp, AdamOptions{.lr = 0.02});
    for (int k = 0; k < 2; ++k) step(*net, ddp, optimizer, k);
    StateDict state(StateUse::kSave);
    state.add("model", *net);
    state.add("optimizer", optimizer);
    save_checkpoint(world, folder, state).or_throw();
    step(*net, ddp, optimizer, 2);
    if (world.rank() == 0) write_file(folder + "/digest", std::to_string(digest(*net))).or_throw();
  });
  EXPECT_EQ(test::describe(outcomes), "");
  outcomes = test::run_processes(2, [&](Group& world) {
    at::set_num_threads(1);
    const auto net = make_net(at::kDouble);
    for (auto& parameter : net->parameters()) at::NoGradGuard(), parameter.detach().zero_();
    DataParallel ddp(net, world, options);
    ShardedOptimizer optimizer(ddp, AdamOptions{.lr = 0.02}, {.stage = 2});
    const auto reader = CheckpointReader::open(folder).or_throw();
    StateDict state(StateUse::kLoad);
    state.add("model", *net);
    state.add("optimizer", optimizer);
    state.load(world, reader).or_throw();
    step(*net, ddp, optimizer, 2);
    const std::string expected = read_file(folder + "/digest", 100).or_throw();
    test::check(std::to_string(digest(*net)) == expected, "digest ", digest(*net), " and ", expected);

    const auto wrong_type = make_net(at::kFloat);
    Optimizer f32(*wrong_type, AdamOptions{}), adagrad(*net, AdagradOptions{});
    const auto why = [&](Optimizer& wrong) {
      StateDict dict(StateUse::kLoad);
      dict.add("optimizer", wrong);
      return to_string(dict.load(Group(), reader).error());
    };
    const auto type_error = why(f32);
    test::check(type_error.find("exp_avg of in.weight is f64[301, 97], wanted f32[301, 97]") != std::string::npos,
                type_error);
    const auto rule_error = why(adagrad);
    test::check(rule_error.find("it lacks ") != std::string::npos, rule_error);
  });
  EXPECT_EQ(test::describe(outcomes), "");
  std::filesystem::remove_all(folder);
}

TEST(ShardedOptimizer, RejectsARuleOfMatrices) {
  const auto outcomes = test::run_threads(1, [](Group& world) {
    const auto net = make_net(at::kFloat);
    DataParallel ddp(net, world, kLargeFrom4K);
    std::string refusal;
    try {
      ShardedOptimizer optimizer(ddp, MuonOptions{});
    } catch (const Exception& error) {
      refusal = error.what();
    }
    test::check(refusal.find("Muon steps whole matrices, but each rank has a part of the elements of a parameter") !=
                    std::string::npos,
                refusal);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
