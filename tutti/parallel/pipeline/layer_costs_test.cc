#include "tutti/parallel/pipeline/layer_costs.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "tests/harness/ranks.h"
#include "tutti/planning/stage_layers.h"

namespace tutti::test {
namespace {

// A layer whose work is a wait, in forward and in backward.
LayerFunction waiting(std::chrono::milliseconds time, const at::Tensor& weight) {
  return [=](const at::Tensor& input) {
    std::this_thread::sleep_for(time);
    at::Tensor output = input.to(at::kFloat) * weight;
    output.register_hook([time](const at::Tensor& gradient) { return std::this_thread::sleep_for(time), gradient; });
    return output;
  };
}

TEST(LayerCosts, AreMeasuredAndCutWhereTheyWeighAlike) {
  const auto outcomes = run_threads(2, [&](Group& world) {
    const at::Tensor weight = at::ones({}).requires_grad_();
    const int times[] = {2, 2, 2, 12, 2, 2};
    int alive = 0, most = 0;
    const auto make = [&](int layer) {
      most = std::max(most, ++alive);
      const auto count = std::shared_ptr<int>(&alive, [](int* living) { --*living; });
      const LayerFunction one = waiting(std::chrono::milliseconds(times[layer]), weight);
      return [count, one](const at::Tensor& input) { return one(input); };
    };
    const auto costs = measured_layer_costs(world, 6, make, at::arange(3, at::kLong), 2);
    for (int i = 0; i < 6; ++i)
      check(costs[std::size_t(i)] >= 2e-3 * times[i], "layer ", i, ": ", costs[std::size_t(i)]);
    check(most == 1 && alive == 0, most, " layers at once");
    const auto stages = balanced_stages(costs, 3);
    check(stages[0].size() == 3 && stages[1].size() == 1, "stages of ", stages[0].size(), ", ", stages[1].size());
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(LayerCosts, ALayerThatThrowsIsReportedByAll) {
  const auto outcomes = run_threads(2, [&](Group& world) {
    measured_layer_costs(
        world, 2,
        [&](int layer) {
          return [&world, layer](const at::Tensor& input) {
            if (layer == 1 && world.rank() == 1) throw std::runtime_error("too heavy");
            return input;
          };
        },
        at::ones({2}));
  });
  for (const Outcome& outcome : outcomes)
    EXPECT_THAT(outcome.error, ::testing::HasSubstr("layer 1 threw while it was measured: too heavy"));
}

}  // namespace
}  // namespace tutti::test
