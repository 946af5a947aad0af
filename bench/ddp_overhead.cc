// ddp_overhead: what DataParallel itself costs a step, beside the reduction: hooks, buckets, packing, bookkeeping.
//
//   ddp_overhead [ROUNDS]     prints microseconds a step and their share of the step, for the networks of train_image;
//                             ends with 1 if that of cnn is 1 % or more
//
// In a world of one nothing is reduced. A step of a real network varies by more than what is looked for, so its cost is
// measured where nothing hides it: a loss that is the sum of all parameters needs next to no computing, and gives each
// parameter a gradient of its own. Steps with and without DataParallel take turns, and the medians' difference is its
// work. (Both in the same memory: the allocator is the same.) The step that it is a share of is that of the network,
// with a batch of 64.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/text.h"
#include "tutti/models/image/models.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/runtime/init.h"

namespace {

template <class Act>
double seconds_of(const Act& act) {
  const auto begin = tutti::now();
  act();
  return tutti::seconds_since(begin);
}

at::Tensor sum_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> sums;
  for (const auto& parameter : parameters) sums.push_back(parameter.sum());
  return at::stack(sums).sum();
}

struct Cost {
  double own_seconds = 0, step_seconds = 0;
};

Cost measure(const tutti::Group& world, const std::string& network, int rounds) {
  const auto model = tutti::make_image_model(network, 1);
  const auto parameters = model->parameters();
  const auto forget = [&] {
    for (auto parameter : parameters) parameter.mutable_grad() = at::Tensor();
  };
  const auto pictures = at::randn({64, 1, 28, 28});
  const auto labels = at::zeros({64}, at::kLong);
  std::vector<double> steps, bare, wrapped;
  const tutti::Compute compute(world);
  tutti::DataParallel ddp(model, world);
  // A backward() whose hooks do nothing: no_sync() is but a flag.
  const auto run_bare = [&] {
    const auto pause = ddp.no_sync();
    forget();
    sum_of(parameters).backward();
  };
  const auto run_wrapped = [&] {
    ddp.zero_grad();
    ddp.reducer().before_forward();
    sum_of(parameters).backward();
    ddp.finish();
  };
  for (int i = 0; i < rounds; ++i) {
    const bool warm = i >= 3;
    const double with = seconds_of(run_wrapped), without = seconds_of(run_bare);
    if (!warm) continue;
    wrapped.push_back(with);
    bare.push_back(without);
  }
  for (int i = 0; i < std::max(5, rounds / 20); ++i) {
    const double took = seconds_of([&] {
      const auto pause = ddp.no_sync();
      forget();
      at::nll_loss(model->forward(pictures), labels).backward();
    });
    if (i >= 2) steps.push_back(took);
  }
  return {tutti::median(wrapped) - tutti::median(bare), tutti::median(steps)};
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 400;
  if (argc > 2 || (argc == 2 && (std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), rounds).ec != std::errc() ||
                                 rounds < 10))) {
    fmt::print(stderr, "usage: ddp_overhead [ROUNDS, at least 10]\n");
    return 2;
  }
  const auto world = tutti::init();
  double share_of_cnn = 0;
  for (const std::string network : {"cnn", "mlp"}) {
    const auto cost = measure(world, network, rounds);
    const double share = 100 * cost.own_seconds / cost.step_seconds;
    fmt::print("{}: DataParallel's own work {:.1f} us a step, {:.3f} % of a step of {:.2f} ms\n", network,
               1e6 * cost.own_seconds, share, 1e3 * cost.step_seconds);
    if (network == "cnn") share_of_cnn = share;
  }
  return share_of_cnn < 1 ? 0 : 1;
}
