// A step of each optimizer against torch::optim's and against what memory allows. Alone: every rule, unsharded. Under
// `tutti run -n N`: what a step after backward() takes with all of the gradients averaged and stepped on every rank,
// and with a ShardedOptimizer in each stage.
//
//   optimizer_bench [millions of parameters]            one thread, or OMP_NUM_THREADS
//   tutti run -n 2 -- optimizer_bench [millions]
//
// A and B alternate; the figures are medians, the ratio the median of the ratios.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/text.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/runtime/init.h"

namespace tutti {
namespace {

constexpr int kRounds = 15;
constexpr std::int64_t kWidth = 2048;  // weights of 16 MiB

double seconds_of(const std::function<void()>& act) {
  const auto begin = now();
  act();
  return seconds_since(begin);
}

// Bytes that memory moves in a second: of a += b over more than any cache, two read and one written.
double copy_rate() {
  const std::int64_t count = std::int64_t(32) << 20;
  const auto a = at::ones({count}), b = at::ones({count});
  a.add_(b);
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) rates.push_back(12.0 * double(count) / seconds_of([&] { a.add_(b); }));
  return median(rates);
}

struct Contest {
  const char* name;
  UpdateRule rule;
  double bytes;  // that a step has to move, of f32 a parameter
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<at::Tensor>)> reference;
};

std::vector<Contest> contests() {
  return {{"Sgd", SgdOptions{.lr = 1e-3}, 12,
           [](auto p) { return std::make_unique<torch::optim::SGD>(p, torch::optim::SGDOptions(1e-3)); }},
          {"Sgd, momentum", SgdOptions{.lr = 1e-3, .momentum = 0.9}, 20,
           [](auto p) { return std::make_unique<torch::optim::SGD>(p, torch::optim::SGDOptions(1e-3).momentum(0.9)); }},
          {"Adam", AdamOptions{}, 28,
           [](auto p) { return std::make_unique<torch::optim::Adam>(p, torch::optim::AdamOptions()); }},
          {"AdamW", AdamWOptions{}, 28,
           [](auto p) { return std::make_unique<torch::optim::AdamW>(p, torch::optim::AdamWOptions()); }},
          {"Adagrad", AdagradOptions{}, 20,
           [](auto p) { return std::make_unique<torch::optim::Adagrad>(p, torch::optim::AdagradOptions()); }}};
}

void alone(double millions) {
  const auto weights = std::max<std::int64_t>(1, std::int64_t(millions * 1e6) / (kWidth * kWidth));
  const double parameters = double(weights * kWidth * kWidth), rate = copy_rate();
  fmt::print("{:.1f} million parameters, {} threads, memory moves {:.1f} GB/s\n", parameters / 1e6,
             at::get_num_threads(), rate / 1e9);
  fmt::print("{:14} {:>9} {:>13} {:>7} {:>10} {:>15}\n", "step of", "tutti ms", "torch ms", "ratio", "bound ms",
             "of the bound");
  for (const auto& contest : contests()) {
    std::vector<at::Tensor> mine, theirs;
    for (std::int64_t i = 0; i < weights; ++i) {
      for (auto* set : {&mine, &theirs}) {
        auto weight = at::randn({kWidth, kWidth}).set_requires_grad(true);
        weight.mutable_grad() = at::randn({kWidth, kWidth});
        set->push_back(weight);
      }
    }
    Optimizer optimizer(mine, contest.rule);
    const auto reference = contest.reference(theirs);
    optimizer.step(), reference->step();  // makes the state
    std::vector<double> ours, others, ratios;
    for (int round = 0; round < kRounds; ++round) {
      ours.push_back(seconds_of([&] { optimizer.step(); }));
      others.push_back(seconds_of([&] { reference->step(); }));
      ratios.push_back(others.back() / ours.back());
    }
    const double bound = contest.bytes * parameters / rate;
    fmt::print("{:14} {:9.2f} {:13.2f} {:6.2f}x {:10.2f} {:14.0f}%\n", contest.name, median(ours) * 1e3,
               median(others) * 1e3, median(ratios), bound * 1e3, 100 * bound / median(ours));
  }
}

torch::nn::Sequential make_model(double millions) {
  torch::nn::Sequential model;
  const auto layers = std::max<std::int64_t>(1, std::int64_t(millions * 1e6) / (kWidth * kWidth));
  for (std::int64_t i = 0; i < layers; ++i)
    model->push_back(torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false)));
  return model;
}

// The longest of all ranks, from a meeting on.
double step_over_ranks(const Group& world, const std::function<void()>& step) {
  barrier(world);
  const double seconds = seconds_of(step);
  return all_reduce(world, seconds, ReduceOp::kMax);
}

// Steps of backward() and what follows; the time of each.
template <class Model, class Step, class ZeroGrad>
void row(const Group& world, const char* name, Model& model, const Step& step, const ZeroGrad& zero_grad) {
  const auto x = at::randn({4, kWidth});
  std::vector<double> backward, steps;
  for (int round = 0; round < kRounds; ++round) {
    const auto loss = model.forward(x).square().mean();
    backward.push_back(step_over_ranks(world, [&] { loss.backward(); }));
    steps.push_back(step_over_ranks(world, step));
    zero_grad();
  }
  if (world.rank() == 0)
    fmt::print("{:34} {:12.2f} {:12.2f} {:12.2f}\n", name, median(backward) * 1e3, median(steps) * 1e3,
               (median(backward) + median(steps)) * 1e3);
}

void over_ranks(const Group& world, double millions) {
  const Compute compute(world);
  if (world.rank() == 0)
    fmt::print("{} ranks, about {} million parameters, Adam\n{:34} {:>12} {:>12} {:>12}\n", world.size(), millions, "",
               "backward ms", "step ms", "both ms");
  {
    auto model = make_model(millions);
    DataParallel ddp(model.ptr(), world);
    torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions());
    row(
        world, "finish(), torch::optim::Adam", ddp, [&] { ddp.finish(), optimizer.step(); }, [&] { ddp.zero_grad(); });
  }
  {
    auto model = make_model(millions);
    DataParallel ddp(model.ptr(), world);
    Adam optimizer(*model);
    row(
        world, "finish(), Adam", ddp, [&] { ddp.finish(), optimizer.step(); }, [&] { ddp.zero_grad(); });
  }
  for (int stage : {1, 2}) {
    auto model = make_model(millions);
    DataParallel ddp(model.ptr(), world);
    ShardedOptimizer optimizer(ddp, AdamOptions{}, {.stage = stage});
    row(
        world, stage == 1 ? "ShardedOptimizer, stage 1" : "ShardedOptimizer, stage 2", ddp, [&] { optimizer.step(); },
        [&] { optimizer.zero_grad(); });
  }
  for (bool share : {true, false}) {
    auto model = make_model(millions);
    FullySharded sharded(model, world, {.share_on_host = share});
    ShardedOptimizer optimizer(sharded, AdamOptions{});
    row(
        world, share ? "stage 3, one copy on the host" : "stage 3, gathered", sharded, [&] { optimizer.step(); },
        [&] { optimizer.zero_grad(); });
  }
}

}  // namespace
}  // namespace tutti

int main(int argc, char** argv) {
  const double millions = argc > 1 ? std::atof(argv[1]) : 32;
  if (!(millions > 0)) {
    fmt::print(stderr, "usage: optimizer_bench [millions of parameters]\n");
    return 2;
  }
  const tutti::Group world = tutti::init();
  world.size() == 1 ? tutti::alone(millions) : tutti::over_ranks(world, millions);
}
