#pragma once
// How a FullySharded with a ShardedOptimizer is trained to be compared with a DataParallel with an Optimizer, and the
// comparison.
#include <ATen/ATen.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "tests/harness/ranks.h"
#include "tutti/comm/collectives.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/fully_sharded/fully_sharded.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/tensor/compute.h"

namespace tutti::parity {

inline constexpr int kSteps = 4;
inline constexpr std::int64_t kBatch = 6;  // of a rank

struct Case {
  const char* name;
  int ranks;
  FullyShardedOptions sharding = {};
  UpdateRule rule = AdamOptions{.lr = 0.02};
  at::ScalarType type = at::kFloat;
  bool frozen = false;  // a layer in the middle of a block
  double max_norm = 0;  // 0: not clipped
  test::WorldOptions world = {};
  double tolerance = 0;
  std::vector<ParameterGroup> groups = {};
};
inline void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class Pair : public torch::nn::Module {
 public:
  Pair()
      : in(register_module("in", torch::nn::Linear(301, 301))),
        out(register_module("out", torch::nn::Linear(301, 97))) {}
  at::Tensor forward(at::Tensor x) { return out->forward(at::tanh(in->forward(x))); }
  torch::nn::Linear in, out;
};

// A block of two layers, one without parameters, and three that are one layer each.
inline torch::nn::Sequential make_net(at::ScalarType type, bool frozen = false, at::Device device = at::kCPU) {
  at::manual_seed(11);
  const auto pair = std::make_shared<Pair>();
  torch::nn::Sequential net(torch::nn::Linear(97, 301), torch::nn::Tanh(), pair, torch::nn::Linear(97, 31),
                            torch::nn::Linear(31, 3));
  net->to(device, type);
  pair->in->weight.set_requires_grad(!frozen);
  return net;
}

// Of a rank in a step.
inline at::Tensor batch(const Group& world, int step, at::ScalarType type) {
  auto generator = at::detail::createCPUGenerator(std::uint64_t(world.rank() + 1 + step * 100));
  return at::randn({kBatch, 97}, generator, at::kDouble).to(type);
}

// The same weights and state of the optimizer, to the tolerance of the case or `tolerance`; and each rank keeps its
// part.
inline void check_equals_data_parallel(const Group& world, const Case& param, at::Device device = at::kCPU,
                                       double tolerance = 0) {
  fix_compute_threads(1);
  auto plain = make_net(param.type, param.frozen, device), sharded = make_net(param.type, param.frozen, device);
  if (world.rank() > 0)  // rank 0's weights count
    for (auto& parameter : sharded->parameters()) parameter.detach().zero_();
  std::size_t plain_bytes = 0;
  std::vector<StatePart> plain_state;
  {
    DataParallel ddp(plain.ptr(), world, {.in_place_bytes = 4096});
    Optimizer optimizer(*plain, param.rule, param.groups);
    for (int k = 0; k < kSteps; ++k) {
      ddp.forward(batch(world, k, param.type).to(device)).square().mean().backward();
      ddp.finish();
      if (param.max_norm > 0) optimizer.clip_grad_norm(param.max_norm);
      optimizer.step();
      optimizer.zero_grad();
    }
    plain_bytes = optimizer.state_bytes();
    plain_state = optimizer.own_state();
  }
  FullySharded model(sharded, world, param.sharding);
  ShardedOptimizer optimizer(model, param.rule, param.groups);
  for (int k = 0; k < kSteps; ++k) {
    model.forward(batch(world, k, param.type).to(device)).square().mean().backward();
    if (param.max_norm > 0) optimizer.clip_grad_norm(param.max_norm);
    optimizer.step();
    optimizer.zero_grad();
    const at::NoGradGuard no_grad;
    (void)model.forward(batch(world, k, param.type).to(device));  // an evaluation in between
  }
  const auto near = [&](const at::Tensor& found, const at::Tensor& expected, const std::string& name) {
    const double apart = (found - expected).abs().max().item<double>();
    test::check(apart <= std::max(param.tolerance, tolerance), name, " differs by ", apart * 1e12, "e-12");
  };
  {
    const auto whole = model.whole();
    const auto found = sharded->named_parameters(), expected = plain->named_parameters();
    for (const auto& item : expected) near(found[item.key()], item.value(), item.key());
  }
  const auto state = optimizer.full_state();
  test::check(state.size() == plain_state.size(), "states ", state.size(), " and ", plain_state.size());
  for (std::size_t k = 0; k < state.size(); ++k) {
    test::check(state[k].parameter == plain_state[k].parameter, state[k].parameter, " ", plain_state[k].parameter);
    near(state[k].values, plain_state[k].values, state[k].state + " of " + state[k].parameter);
  }
  const auto ranks = std::size_t(world.size());
  const std::size_t gaps = 20 * 64 * 2;
  test::check(param.frozen || optimizer.state_bytes() <= plain_bytes / ranks + gaps, "state ", optimizer.state_bytes());
  std::size_t weights = 0;
  for (const auto& parameter : plain->parameters()) weights += parameter.nbytes();
  std::size_t kept = model.weight_bytes();
  const bool shares = device.is_cpu() && param.sharding.share_on_host && ranks > 1 && param.world.transport != "tcp";
  test::check(model.shared() == shares, "shared ", model.shared());
  if (model.shared()) {  // whole blocks, dealt out to ranks
    kept = std::size_t(all_reduce(world, std::int64_t(kept)));
    test::check(kept <= weights + 5 * ranks * 64 * 4, "all ranks keep ", kept, " of ", weights);
  } else {
    test::check(kept <= weights / ranks + 5 * 64 * 4, "weights ", kept, " of ", weights);
  }
}

inline const FullyShardedOptions kGathered = {.share_on_host = false},
                                 kNoPrefetch = {.prefetch = 0, .share_on_host = false},
                                 kFarPrefetch = {.prefetch = 9, .share_on_host = false};
inline const SgdOptions kMomentum = {.lr = 0.1, .momentum = 0.9};
inline const std::vector<ParameterGroup> kGroups = {
    {.names = {"0.bias", "2.out.bias"}, .rule = AdamOptions{.lr = 0.1}},
    {.names = {"2.in.weight"}, .rule = AdamOptions{.lr = 0, .weight_decay = 1}}};

inline const Case kCases[] = {
    Case{"alone", 1},
    Case{"two", 2},
    Case{"three", 3, {}, kMomentum, at::kDouble},
    Case{"gathered", 2, kGathered},
    Case{"groups", 2, kGathered, AdamOptions{}, at::kFloat, false, 0, {}, 0, kGroups},
    Case{"gathered_by_three", 3, kGathered, AdamWOptions{}, at::kDouble},
    Case{"no_prefetch", 2, kNoPrefetch},
    Case{"far_prefetch", 3, kFarPrefetch},
    Case{"frozen", 2, {}, kMomentum, at::kFloat, true},
    Case{"frozen_gathered", 2, kGathered, kMomentum, at::kFloat, true},
    Case{"clipped", 3, {}, kMomentum, at::kFloat, false, 0.05},
    Case{"clipped_gathered", 2, kGathered, AdamOptions{}, at::kFloat, false, 0.05},
    Case{"over_links", 3, {}, kMomentum, at::kDouble, false, 0, {.transport = "tcp"}, 1e-13},
};

}  // namespace tutti::parity
