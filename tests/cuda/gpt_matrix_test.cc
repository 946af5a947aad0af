// Every grid of up to eight ranks trains on GPUs as one process on the CPU (tests/parity/gpt_matrix.h). The GPUs are
// real ones with TUTTI_REAL_GPUS, else the doubles of the CUDA runtime and of LibTorch's device.
#include "tests/parity/gpt_matrix.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/cuda/worlds.h"

namespace tutti::gpt {
namespace {

constexpr int kStepsOnGpu = 2;

class GptMatrixOnGpus : public ::testing::TestWithParam<GridSizes> {};

TEST_P(GptMatrixOnGpus, TrainsAsOneProcessOnTheCpu) {
  std::vector<Combination> all = fitting(GetParam());
  for (const Combination& c : fitting_fully_sharded(GetParam())) all.push_back(c);
  auto options = test::with_gpus(test::kStaged);
  options.watchdog = 1200;
  const auto outcomes = test::run_processes(
      GetParam().ranks(),
      [&](Group& world) {
        at::set_num_threads(1);
        // Here, and not before the ranks are forked: LibTorch's autograd has threads.
        const References references = references_of(all);
        Findings findings;
        train_all(all, references, world, findings, at::Device(world.device()), kStepsOnGpu);
        test::check(findings.failures().empty(), findings.failures());
        test::check(findings.runs() == int(all.size()), findings.runs(), " of ", all.size(), " combinations ran");
      },
      options);
  EXPECT_EQ(test::describe(outcomes), "");
}

INSTANTIATE_TEST_SUITE_P(Grids, GptMatrixOnGpus, ::testing::ValuesIn(grids()),
                         [](const auto& info) { return info.param.name(); });

}  // namespace
}  // namespace tutti::gpt
