// A GPT on grids of ranks with GPUs against one process on the CPU (tests/parity/gpt_grid.h). The GPUs are real ones
// with TUTTI_REAL_GPUS, else the doubles of the CUDA runtime and of LibTorch's device.
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <string>

#include "tests/cuda/worlds.h"
#include "tests/parity/gpt_grid.h"

namespace tutti::gpt {
namespace {

const Combination kCombinations[] = {
    {},
    {.recompute = true},
    {.tensor = 2, .sequence_parallel = true},
    {.tensor = 2, .recompute = true},
    {.pipeline = 2},
    {.pipeline = 2, .chunks = 2, .recompute = true, .schedule = ScheduleKind::kInterleaved},
    {.pipeline = 2, .chunks = 2, .schedule = ScheduleKind::kZeroBubbleV},
    {.context = 2, .recompute = true},
    {.data = 2},
    {.data = 2, .fully_shard = true},
    {.tensor = 2, .context = 2, .sequence_parallel = true, .recompute = true},
    {.tensor = 2, .pipeline = 2, .recompute = true},
    {.tensor = 2, .data = 2, .recompute = true, .fully_shard = true},
    {.tensor = 2, .pipeline = 2, .data = 2, .sequence_parallel = true, .schedule = ScheduleKind::kZeroBubbleH1},
    {.pipeline = 2, .data = 2, .context = 2, .recompute = true},
};

std::string name_of(const Combination& c) {
  return fmt::format("tp{}_pp{}_dp{}_cp{}{}{}{}", c.tensor, c.pipeline, c.data, c.context,
                     c.chunks > 1 ? fmt::format("_schedule{}", int(c.schedule)) : "", c.recompute ? "_recomputed" : "",
                     c.fully_shard ? "_fully_sharded" : "");
}

class GptOnGpus : public ::testing::TestWithParam<Combination> {};

void expect_trains(const Combination& c, const char* engine) {
  const auto outcomes = test::run_processes(
      c.ranks(),
      [&](Group& world) {
        at::set_num_threads(1);
        // Here, and not before the ranks are forked: LibTorch's autograd has threads.
        const Reference expected = reference_of(layers_of(c), c.recompute);
        Findings findings;
        train(c, expected, world, findings, at::Device(world.device()));
        test::check(findings.failures().empty(), findings.failures());
      },
      test::with_gpus(engine));
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST_P(GptOnGpus, TrainsAsOneProcessOnTheCpu) { expect_trains(GetParam(), test::kStaged); }

#ifdef TUTTI_HAS_NCCL
// There the host does not wait for the calls in a pass.
class GptOnGpusByNccl : public ::testing::TestWithParam<Combination> {};

TEST_P(GptOnGpusByNccl, TrainsAsOneProcessOnTheCpu) {
  if (const std::string lacks = test::lacks_gpus(GetParam().ranks()); !lacks.empty()) GTEST_SKIP() << lacks;
  expect_trains(GetParam(), test::kNccl);
}

const Combination kByNccl[] = {{.tensor = 2, .pipeline = 2, .recompute = true},
                               {.tensor = 2, .context = 2, .sequence_parallel = true},
                               {.tensor = 2, .data = 2, .recompute = true, .fully_shard = true}};
INSTANTIATE_TEST_SUITE_P(Grids, GptOnGpusByNccl, ::testing::ValuesIn(kByNccl),
                         [](const auto& info) { return name_of(info.param); });
#endif

INSTANTIATE_TEST_SUITE_P(Grids, GptOnGpus, ::testing::ValuesIn(kCombinations),
                         [](const auto& info) { return name_of(info.param); });

}  // namespace
}  // namespace tutti::gpt
