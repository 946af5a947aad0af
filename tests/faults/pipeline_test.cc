// A stage of a pipeline is killed, or stopped, in the middle of a step: the others end with an Exception that names it,
// and which stage's output or gradient they waited for; long before any limit where the kernel tells, else at the
// limit.
#include "tutti/parallel/pipeline/pipeline.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <signal.h>

#include "tests/faults/worlds.h"
#include "tutti/comm/collectives.h"

namespace tutti::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;

class InAStep : public ::testing::TestWithParam<std::tuple<std::string, ScheduleKind>> {
 protected:
  // Rank 1 of 3 does `deed` in its third forward of the second step.
  std::vector<Outcome> run(const std::function<void()>& deed, double timeout) {
    const auto [transport, kind] = GetParam();
    const auto body = [&, kind = kind](Group& world) {
      at::set_num_threads(1);
      const auto pids = processes_of(world);
      const Schedule schedule =
          make_schedule(kind, {.ranks = 3, .microbatches = 6, .chunks = kind == ScheduleKind::kInterleaved ? 2 : 1});
      const at::Tensor weight = at::ones({}).requires_grad_();
      int steps = 0;
      std::vector<Chunk> chunks;
      for (int c = 0; c < schedule.shape.chunks; ++c)
        chunks.push_back([&, c](int microbatch, const at::Tensor& input) {
          if (world.rank() == 1 && steps == 1 && microbatch == 2 && c == 0) deed();
          const at::Tensor output = (input.defined() ? input : at::ones({1000})) * weight;
          const bool is_last = schedule.stage_of(world.rank(), c) == schedule.shape.stages() - 1;
          return is_last ? output.sum() : output;
        });
      Pipeline pipeline(world, chunks, {.messages = {.sizes = {1000}}});
      try {
        for (; steps < 3; ++steps) pipeline.run(schedule);
      } catch (...) {
        if (world.rank() == 0) ::kill(pids[1], SIGCONT);
        throw;
      }
    };
    return run_processes(3, body, {.transport = transport, .timeout = timeout});
  }
};

TEST_P(InAStep, AKilledStageIsNamedByTheAdjacentStages) {
  const auto outcomes = run([] { ::raise(SIGKILL); }, 1000);
  EXPECT_EQ(outcomes[1].signal, SIGKILL);
  for (const std::size_t rank : {0, 2}) {
    EXPECT_FALSE(outcomes[rank].hung);
    EXPECT_THAT(outcomes[rank].error, HasSubstr("PeerLost: ")) << rank;
    EXPECT_THAT(outcomes[rank].error, HasSubstr("rank 1")) << rank;
    EXPECT_THAT(outcomes[rank].error,
                ContainsRegex("(the output of stage|the gradient of stage) [0-9].* microbatch [0-9]"))
        << rank;
  }
}

TEST_P(InAStep, AStoppedStageIsNamedAtTheLimit) {
  const auto outcomes = run([] { ::raise(SIGSTOP); }, 1);
  for (const std::size_t rank : {0, 2}) {
    EXPECT_FALSE(outcomes[rank].hung);
    EXPECT_THAT(outcomes[rank].error, HasSubstr("Timeout: ")) << rank;
    EXPECT_THAT(outcomes[rank].error, ContainsRegex("rank 1.*(is stopped|gives no answer)")) << rank;
    EXPECT_THAT(outcomes[rank].error, ContainsRegex("stage [0-9].* microbatch [0-9]")) << rank;
  }
  EXPECT_FALSE(outcomes[1].hung);
  EXPECT_FALSE(outcomes[1].ok());
}

INSTANTIATE_TEST_SUITE_P(Pipeline, InAStep,
                         ::testing::Combine(::testing::Values("shm", "tcp"),
                                            ::testing::Values(ScheduleKind::kOneForwardOneBackward,
                                                              ScheduleKind::kInterleaved)));

}  // namespace
}  // namespace tutti::test
