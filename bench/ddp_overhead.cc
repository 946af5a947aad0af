// ddp_overhead: what DataParallel itself costs a step, beside the reduction: hooks, buckets, packing, bookkeeping.
//
//   ddp_overhead [ROUNDS [cuda]]     prints microseconds a step and their share of the step, for the networks of
//                                    train_image; ends with 1 if that of cnn is 1 % or more on the CPU
//
// In a world of one nothing is reduced. A step of a real network varies by more than what is looked for, so its cost is
// measured where nothing hides it: a loss that is the sum of all parameters needs next to no computing, and gives each
// parameter a gradient of its own. Steps with and without DataParallel take turns, and the medians' difference is its
// work. (Both in the same memory: the allocator is the same.) The step that it is a share of is that of the network,
// with a batch of 64. On a GPU these are times of the host, which launches kernels and waits for none of them.
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/text.h"
#include "tutti/models/image/models.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/runtime/init.h"
#include "tutti/tensor/rank_device.h"

namespace {

template <class Act>
double seconds_of(const Act& act) {
  const auto begin = tutti::now();
  act();
  return tutti::seconds_since(begin);
}

// Until the device has done what was launched.
void await(at::Device device) {
  if (device.is_cuda()) (void)at::zeros({1}, device).cpu();
}

at::Tensor sum_of(const std::vector<at::Tensor>& parameters) {
  std::vector<at::Tensor> sums;
  for (const auto& parameter : parameters) sums.push_back(parameter.sum());
  return at::stack(sums).sum();
}

struct Cost {
  double own_seconds = 0, step_seconds = 0;
};

Cost measure(const tutti::Group& world, const std::string& network, at::Device device, int rounds) {
  const auto model = tutti::make_image_model(network, 1);
  model->to(device);
  const auto parameters = model->parameters();
  const auto forget = [&] {
    for (auto parameter : parameters) parameter.mutable_grad() = at::Tensor();
  };
  const auto pictures = at::randn({64, 1, 28, 28}, device);
  const auto labels = at::zeros({64}, at::TensorOptions(at::kLong).device(device));
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
    const double with = seconds_of(run_wrapped);
    await(device);
    const double without = seconds_of(run_bare);
    await(device);
    if (!warm) continue;
    wrapped.push_back(with);
    bare.push_back(without);
  }
  for (int i = 0; i < std::max(5, rounds / 20); ++i) {
    const double took = seconds_of([&] {
      const auto pause = ddp.no_sync();
      forget();
      at::nll_loss(model->forward(pictures), labels).backward();
      await(device);
    });
    if (i >= 2) steps.push_back(took);
  }
  return {tutti::median(wrapped) - tutti::median(bare), tutti::median(steps)};
}

}  // namespace

int main(int argc, char** argv) {
  int rounds = 400;
  const bool has_rounds =
      argc < 2 || std::from_chars(argv[1], argv[1] + std::strlen(argv[1]), rounds).ec == std::errc();
  const std::string_view where = argc > 2 ? argv[2] : "cpu";
  if (argc > 3 || !has_rounds || rounds < 10 || (where != "cpu" && where != "cuda")) {
    fmt::print(stderr, "usage: ddp_overhead [ROUNDS, at least 10 [cpu or cuda]]\n");
    return 2;
  }
  const auto world = tutti::init();
  const at::Device device = tutti::rank_device(world, std::string(where));
  double share_of_cnn = 0;
  for (const std::string network : {"cnn", "mlp"}) {
    const auto cost = measure(world, network, device, rounds);
    const double share = 100 * cost.own_seconds / cost.step_seconds;
    fmt::print("{}: DataParallel's own work {:.1f} us a step, {:.3f} % of a step of {:.2f} ms\n", network,
               1e6 * cost.own_seconds, share, 1e3 * cost.step_seconds);
    if (network == "cnn") share_of_cnn = share;
  }
  return device.is_cuda() || share_of_cnn < 1 ? 0 : 1;
}
