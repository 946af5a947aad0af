// A NaN or an infinity in one element of one gradient of one rank: by default every way to average finds it, all ranks
// say the same, the group lives, and the next step is as if nothing had been.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include <functional>
#include <limits>
#include <optional>
#include <ostream>

#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/data_parallel/hooks/compression.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/collectives.h"

namespace tutti {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN(), kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kPackedBelow = 4096;  // bytes

// `wide.weight` is large enough for the heap (64 KiB) and is cut with a tail; the others are packed.
class Net : public torch::nn::Module {
 public:
  Net()
      : wide_(register_module("wide", torch::nn::Linear(97, 203))),
        out_(register_module("out", torch::nn::Linear(203, 3))) {}
  at::Tensor forward(const at::Tensor& x) { return out_->forward(at::tanh(wide_->forward(x))); }

 private:
  torch::nn::Linear wide_, out_;
};

std::shared_ptr<Net> make_net() {
  at::manual_seed(3);
  return std::make_shared<Net>();
}

at::Tensor loss_of(DataParallel<Net>& ddp) { return ddp.forward(at::ones({4, 97})).square().mean(); }

// Adds `value` to an element of this rank's gradient of a parameter, while it lives.
class Poison {
 public:
  Poison(Net& net, const std::string& parameter, std::int64_t place, float value)
      : parameter_(net.named_parameters()[parameter]) {
    const auto poison = at::zeros_like(parameter_.detach());
    poison.view({-1})[place] = value;
    hook_ = parameter_.register_hook([poison](const at::Tensor& gradient) { return gradient + poison; });
  }
  ~Poison() { parameter_.remove_hook(hook_); }

 private:
  at::Tensor parameter_;
  unsigned hook_ = 0;
};

// What the message of the exception begins with, up to the rank that tells it.
std::string error_of(const std::function<void()>& act) {
  try {
    act();
    return "no error";
  } catch (const Exception& error) {
    test::check(error.error().code == Code::kNonFinite, error.what());
    return error.error().detail;
  }
}
void check_says(const std::string& text, const std::string& words) {
  test::check(text == words, "\"", text, "\" is not \"", words, "\"");
}

// Of all parameters, whatever the rank.
void check_replicas(const Group& world, Net& net) {
  for (const auto& item : net.named_parameters()) {
    const auto mine = item.value().detach();
    test::check(at::isfinite(mine).all().item<bool>(), item.key(), " is no longer finite");
    auto sum = mine.to(at::kDouble).clone();
    all_reduce(world, sum, ReduceOp::kMax);
    test::check(at::equal(sum, mine.to(at::kDouble)), item.key(), " differs between ranks");
  }
}

std::vector<at::Tensor> copies(Net& net) {
  std::vector<at::Tensor> made;
  for (const auto& parameter : net.parameters()) made.push_back(parameter.detach().clone());
  return made;
}
bool equal(Net& net, const std::vector<at::Tensor>& other) {
  const auto now = net.parameters();
  for (std::size_t i = 0; i < now.size(); ++i)
    if (!at::equal(now[i].detach(), other[i])) return false;
  return true;
}

// Who has what.
struct Case {
  const char* parameter;
  std::int64_t place;
  float of_rank_0, of_rank_1;
  int blamed;
};
constexpr Case kCases[] = {
    {"wide.weight", 0, 0, kNan, 1},
    {"wide.weight", 97 * 203 - 1, 0, kInfinity, 1},
    {"wide.weight", 97 * 100, -kInfinity, 0, 0},
    {"wide.weight", 97 * 200, kInfinity, -kInfinity, 0},
    {"wide.bias", 202, 0, -kInfinity, 1},
    {"out.weight", 203, kNan, kNan, 0},
    {"out.bias", 2, 0, kInfinity, 1},
};
bool is_packed(const Case& what) { return std::string(what.parameter) != "wide.weight"; }

struct Way {
  const char* name;
  std::string transport;
  DataParallelOptions options;
  bool knows_rank_of_large = true;
  bool heap = true;  // gradients are where peers read them
};
std::ostream& operator<<(std::ostream& out, const Way& way) { return out << way.name; }

DataParallelOptions with(const std::function<void(DataParallelOptions&)>& change) {
  DataParallelOptions options{.in_place_bytes = kPackedBelow, .overlap = Overlap::kOff};
  change(options);
  return options;
}

class NonFiniteInFinish : public testing::TestWithParam<Way> {};
INSTANTIATE_TEST_SUITE_P(
    , NonFiniteInFinish,
    testing::Values(Way{"peers", "shm", with([](auto&) {})},
                    Way{"peers_views", "shm", with([](auto& o) { o.gradient_as_bucket_view = true; })},
                    Way{"peers_find_unused", "shm", with([](auto& o) { o.find_unused_parameters = true; })},
                    Way{"out_of_reach", "shm", with([](auto&) {}), true, false},
                    Way{"overlapped", "shm", with([](auto& o) { o.overlap = Overlap::kOn; }), false},
                    Way{"links", "tcp", with([](auto&) {})},
                    Way{"links_overlapped", "tcp", with([](auto& o) { o.overlap = Overlap::kOn; }), false},
                    Way{"f16", "shm", with([](auto& o) { o.hook = f16_compression(); })},
                    Way{"bf16_links_overlapped", "tcp",
                        with([](auto& o) { o.hook = bf16_compression(), o.overlap = Overlap::kOn; })},
                    Way{"before", "shm", with([](auto& o) { o.finite_check = FiniteCheck::kThrow; })}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_P(NonFiniteInFinish, IsReportedAlikeOnAllRanks) {
  const Way& way = GetParam();
  const auto outcomes = test::run_processes(
      2,
      [&](Group& world) {
        at::set_num_threads(1);
        std::optional<HeapTensors> heap;
        if (way.heap) heap.emplace(world);
        const auto net = make_net();
        auto options = way.options;
        if (options.hook) options.hook = options.hook->name()[0] == 'f' ? f16_compression() : bf16_compression();
        DataParallel ddp(net, world, options);
        int step = 0;
        for (int round = 0; round < 2; ++round) {  // buckets in the order of registration, then in that observed
          for (const Case& what : kCases) {
            ddp.zero_grad();
            {
              const Poison poison(*net, what.parameter, what.place, world.rank() ? what.of_rank_1 : what.of_rank_0);
              loss_of(ddp).backward();
            }
            const std::string of = std::string("the gradient of ") + what.parameter;
            const std::string found = is_packed(what) || way.knows_rank_of_large
                                          ? of + " holds NaN or infinity on rank " + std::to_string(what.blamed)
                                          : "the average of " + of + " holds NaN or infinity";
            check_says(error_of([&] { ddp.finish(); }),
                       "DataParallel: " + found + ", in step " + std::to_string(++step) + " of this DataParallel");
            test::check(ddp.non_finite() && ddp.non_finite()->parameter == what.parameter, "non_finite()");
            ddp.zero_grad();
            loss_of(ddp).backward();
            ddp.finish();
            ++step;
            for (const auto& parameter : net->parameters())
              test::check(at::isfinite(parameter.grad()).all().item<bool>(), "the step after it");
          }
        }
      },
      {.transport = way.transport});
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(NonFinite, IsLeftAloneWhereTheCheckIsOff) {
  const auto outcomes = test::run_processes(2, [&](Group& world) {
    at::set_num_threads(1);
    for (const int stage : {0, 1, 2}) {
      const auto net = make_net();
      DataParallel ddp(net, world, with([](auto& o) { o.finite_check = FiniteCheck::kOff; }));
      std::optional<ShardedOptimizer> optimizer;
      if (stage > 0) optimizer.emplace(ddp, SgdOptions{.lr = 0.1}, ShardedOptimizerOptions{.stage = stage});
      const Poison poison(*net, "wide.weight", 5, world.rank() ? kNan : 0);
      loss_of(ddp).backward();
      optimizer ? optimizer->step() : ddp.finish();
      const auto weight = net->named_parameters()["wide.weight"];
      const auto bad = optimizer ? weight.detach() : weight.grad();
      test::check(bad.isnan().sum().item<std::int64_t>() == 1, "stage ", stage, ": not one NaN");
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// What every rank's gradient allows, and the sum of them in f16 does not.
TEST(NonFinite, WhatOverflowsWhileItIsAveragedIsNoRanksFault) {
  const auto outcomes = test::run_processes(2, [](Group& world) {
    at::set_num_threads(1);
    const auto net = make_net();
    DataParallel ddp(net, world, with([](auto& o) { o.hook = f16_compression(); }));
    const Poison poison(*net, "wide.weight", 5, 1e6f);
    loss_of(ddp).backward();
    check_says(error_of([&] { ddp.finish(); }),
               "DataParallel: the gradient of wide.weight overflowed while it was averaged, in step 1 of this "
               "DataParallel");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(NonFinite, DelayedGradientsAreReportedWhenTheyAreAveraged) {
  const auto outcomes = test::run_processes(2, [](Group& world) {
    at::set_num_threads(1);
    const auto net = make_net();
    DataParallel ddp(net, world, with([](auto& o) { o.delay_all_reduce_named_params = {"out.weight"}; }));
    const Poison poison(*net, "out.weight", 5, world.rank() ? kNan : 0);
    loss_of(ddp).backward();
    ddp.finish();
    check_says(error_of([&] { ddp.average_delayed(); }),
               "DataParallel: the gradient of out.weight holds NaN or infinity on rank 1, in step 1 of this "
               "DataParallel");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(NonFinite, GradientsOfLogicalRanksAreReported) {
  const auto outcomes = test::run_processes(2, [](Group& world) {
    at::set_num_threads(1);
    const auto net = make_net();
    DataParallel ddp(net, world, with([](auto& o) { o.logical_ranks = 4; }));
    for (const std::string where : {"wide.weight", "out.weight"}) {
      ddp.zero_grad();
      for (const int replica : ddp.logical_ranks()) {
        ddp.begin_logical_rank(replica);
        const Poison poison(*net, where, 5, replica == 2 ? kNan : 0);
        loss_of(ddp).backward();
      }
      const auto said = error_of([&] { ddp.finish(); });
      const std::string of = "the gradient of " + where;
      check_says(said.substr(0, said.find(", in step")),
                 "DataParallel: " + (where == "out.weight" ? of + " holds NaN or infinity on rank 1"
                                                           : "the average of " + of + " holds NaN or infinity"));
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(NonFinite, SparseGradientsAreReported) {
  const auto outcomes = test::run_processes(2, [](Group& world) {
    at::set_num_threads(1);
    auto table = std::make_shared<torch::nn::EmbeddingImpl>(torch::nn::EmbeddingOptions(10, 3).sparse(true));
    DataParallel ddp(table, world);
    const float factor = world.rank() ? kInfinity : 1;
    (ddp.forward(at::full({2}, world.rank() + 3, at::kLong)) * factor).sum().backward();
    check_says(error_of([&] { ddp.finish(); }),
               "DataParallel: the gradient of weight holds NaN or infinity on rank 1, in step 1 of this DataParallel");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

struct ShardedWay {
  const char* name;
  std::string transport;
  int stage;
  bool heap, clips;
  bool is_left_alone;  // of the weights: all; else what was finite is stepped
};
std::ostream& operator<<(std::ostream& out, const ShardedWay& way) { return out << way.name; }

class NonFiniteSharded : public testing::TestWithParam<ShardedWay> {};
INSTANTIATE_TEST_SUITE_P(, NonFiniteSharded,
                         testing::Values(ShardedWay{"stage1", "shm", 1, true, false, false},
                                         ShardedWay{"stage1_clipped", "shm", 1, true, true, true},
                                         ShardedWay{"stage1_out_of_reach", "shm", 1, false, false, false},
                                         ShardedWay{"stage1_links", "tcp", 1, true, false, false},
                                         ShardedWay{"stage2", "shm", 2, true, false, true},
                                         ShardedWay{"stage2_links", "tcp", 2, true, false, true}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_P(NonFiniteSharded, IsReportedAlikeOnAllRanks) {
  const ShardedWay& way = GetParam();
  const auto outcomes = test::run_processes(
      2,
      [&](Group& world) {
        at::set_num_threads(1);
        const auto net = make_net();
        std::optional<HeapTensors> heap;
        if (way.heap) heap.emplace(world);
        DataParallel ddp(net, world, with([](auto&) {}));
        ShardedOptimizer optimizer(ddp, AdamOptions{.lr = 1e-3}, {.stage = way.stage});
        int step = 0;
        for (const Case& what : kCases) {
          const auto before = copies(*net);
          {
            const Poison poison(*net, what.parameter, what.place, world.rank() ? what.of_rank_1 : what.of_rank_0);
            loss_of(ddp).backward();
          }
          if (way.clips) (void)optimizer.clip_grad_norm(1.0);
          check_says(
              error_of([&] { optimizer.step(); }),
              std::string("ShardedOptimizer: the gradient of ") + what.parameter +
                  " has a NaN or an infinity on rank " + std::to_string(what.blamed) + ", in step " +
                  std::to_string(++step) + " of this DataParallel; " +
                  (way.is_left_alone ? "the weights are as they were"
                                     : "what was finite has been stepped, on all ranks alike, and nothing else"));
          check_replicas(world, *net);
          test::check(equal(*net, before) == way.is_left_alone, what.parameter, ": the weights");
          const auto weight = net->named_parameters()[what.parameter].detach().view({-1});
          std::size_t number = 0;
          while (net->named_parameters().keys()[number] != what.parameter) ++number;
          test::check(at::equal(weight[what.place], before[number].view({-1})[what.place]), "stepped by what is none");
          optimizer.zero_grad();
          loss_of(ddp).backward();
          optimizer.step();
          ++step;
          optimizer.zero_grad();
          test::check(!equal(*net, before), "the step after it was not made");
          check_replicas(world, *net);
        }
      },
      {.transport = way.transport});
  EXPECT_EQ(test::describe(outcomes), "");
}

// Alone there is nothing to average: only a step that passes over the gradients anyway sees them.
TEST(NonFinite, OfARankThatIsAloneIsSeenByAStepOfItsPart) {
  const auto outcomes = test::run_processes(1, [](Group& world) {
    at::set_num_threads(1);
    const auto net = make_net();
    DataParallel ddp(net, world, with([](auto&) {}));
    const Poison poison(*net, "wide.weight", 5, kNan);
    loss_of(ddp).backward();
    check_says(error_of([&] { ddp.finish(); }), "no error");
    ddp.zero_grad();
    ShardedOptimizer optimizer(ddp, SgdOptions{.lr = 0.1});
    loss_of(ddp).backward();
    check_says(error_of([&] { optimizer.step(); }),
               "ShardedOptimizer: the gradient of wide.weight has a NaN or an infinity on rank 0, in step 2 of this "
               "DataParallel; what was finite has been stepped, on all ranks alike, and nothing else");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
