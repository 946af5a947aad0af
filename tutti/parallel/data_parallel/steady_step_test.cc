// A step like the last one asks the system for no large memory: the allocator finds everything among what it keeps, and
// no page is touched for the first time.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <torch/nn/modules/linear.h>

#include <optional>

#include "tests/harness/ranks.h"
#include "tutti/base/sanitizers.h"
#include "tutti/parallel/data_parallel/data_parallel.h"
#include "tutti/parallel/data_parallel/hooks/compression.h"
#include "tutti/parallel/data_parallel/hooks/power_sgd.h"
#include "tutti/parallel/optim/optimizer.h"
#include "tutti/parallel/optim/sharded_optimizer.h"
#include "tutti/tensor/caching_allocator.h"
#include "tutti/tensor/compute.h"

namespace tutti {
namespace {

class Wide : public torch::nn::Module {
 public:
  Wide()
      : first(register_module("first", torch::nn::Linear(512, 1024))),
        second(register_module("second", torch::nn::Linear(1024, 100))) {}
  at::Tensor forward(const at::Tensor& x) { return second->forward(at::tanh(first->forward(x))); }
  torch::nn::Linear first, second;
};

struct Case {
  const char* name;
  DataParallelOptions options = {};
  std::function<std::shared_ptr<CommHook>()> hook = {};
  int stage = 0;  // of a sharded optimizer; 0: none
};
void PrintTo(const Case& value, std::ostream* out) { *out << value.name; }

class SteadyStep : public testing::TestWithParam<Case> {};

TEST_P(SteadyStep, TakesNoLargeMemory) {
#if TUTTI_ASAN || TUTTI_TSAN
  GTEST_SKIP() << "sanitizers touch memory of their own; the preset release runs this";
#endif
  const auto outcomes = test::run_processes(2, [](Group& world) {
    auto options = GetParam().options;
    if (GetParam().hook) options.hook = GetParam().hook();
    const Compute compute(world);
    at::set_num_threads(1);
    const auto model = std::make_shared<Wide>();
    DataParallel ddp(model, world, options);
    Sgd whole(model->parameters(), {.lr = 0.01, .momentum = 0.9});
    std::optional<ShardedOptimizer> sharded;
    if (GetParam().stage > 0) sharded.emplace(ddp, AdamOptions{}, ShardedOptimizerOptions{.stage = GetParam().stage});
    const auto x = at::ones({32, 512});
    const auto step = [&] {
      ddp.zero_grad();
      ddp.forward(x).square().mean().backward();
      if (sharded) {
        sharded->clip_grad_norm(1);
        sharded->step();
      } else {
        ddp.finish();
        whole.step();
      }
    };
    const auto faults = [] {
      rusage usage{};
      ::getrusage(RUSAGE_SELF, &usage);
      return usage.ru_minflt;
    };
    for (int i = 0; i < 8; ++i) step();
    const auto blocks = caching_allocator_stats().fresh_blocks;
    const auto before = faults();
    constexpr int kSteps = 20;
    for (int i = 0; i < kSteps; ++i) step();
    const auto fresh = caching_allocator_stats().fresh_blocks - blocks;
    const auto pages = faults() - before;
    test::check(fresh == 0, fresh, " large blocks in ", kSteps, " steps were new");
    // The gradients alone are 600 pages a step.
    test::check(pages < 20 * kSteps, pages, " pages in ", kSteps, " steps were touched for the first time");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(
    , SteadyStep,
    testing::Values(Case{"stage1", {}, {}, 1}, Case{"stage2", {}, {}, 2}, Case{"plain"},
                    Case{"overlapped", {.overlap = Overlap::kOn}}, Case{"views", {.gradient_as_bucket_view = true}},
                    Case{"checked", {.finite_check = FiniteCheck::kReport}}, Case{"bf16", {}, bf16_compression},
                    Case{"power_sgd", {}, [] { return std::make_shared<PowerSgd>(PowerSgdOptions{.start_step = 2}); }}),
    [](const auto& info) { return std::string(info.param.name); });

// What a program does to its process, it does by a Compute.
TEST(DataParallel, LeavesTheProcessAsItIs) {
  const auto outcomes = test::run_processes(2, [](Group& world) {
    const auto counts_denormals = [] { return at::full({1}, 1e-40f).mul(0.5f).item<float>() > 0; };
    at::set_num_threads(3);
    {
      DataParallel ddp(std::make_shared<Wide>(), world);
      const auto large = at::ones({1 << 16});
      test::check(caching_allocator_stats().heap_bytes == 0, "large tensors are in the group's memory");
      test::check(at::get_num_threads() == 3, "LibTorch has ", at::get_num_threads(), " threads");
      test::check(counts_denormals(), "denormal numbers are zero");
    }
    const Compute compute(world);
    const auto large = at::ones({1 << 16});
    test::check(caching_allocator_stats().heap_bytes >= large.nbytes(), "large tensors are not in the group's memory");
    test::check(!counts_denormals(), "denormal numbers count");
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

}  // namespace
}  // namespace tutti
