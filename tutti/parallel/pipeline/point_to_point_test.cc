#include "tutti/parallel/pipeline/point_to_point.h"

#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tutti/parallel/pipeline/test_stack.h"

namespace tutti::test {
namespace {

// 1F1B by hand, as Megatron-LM's forward_backward_pipelining_without_interleaving has it.
void one_forward_one_backward(StageLinks& links, const Stack& stack, int rank, int ranks, int microbatches) {
  std::vector<std::pair<at::Tensor, at::Tensor>> kept;  // inputs and outputs, the oldest first
  int forwards = 0;
  const auto forward = [&](const at::Tensor& input) {
    const at::Tensor output = stack.stage(rank, rank + 1, forwards++, input);
    kept.emplace_back(input, output);
    return output;
  };
  const auto backward = [&](const at::Tensor& gradient) {
    const auto [input, output] = kept.front();
    kept.erase(kept.begin());
    output.backward(gradient.defined() ? gradient : at::full({}, 1.0 / microbatches, at::kDouble));
    return input.defined() ? input.grad() : at::Tensor();
  };
  const int warmup = std::min(ranks - rank - 1, microbatches);
  for (int i = 0; i < warmup; ++i) links.send_forward(forward(links.recv_forward()));
  at::Tensor input = microbatches > warmup ? links.recv_forward() : at::Tensor();
  for (int i = 0; i < microbatches - warmup; ++i) {
    const at::Tensor gradient = links.send_forward_recv_backward(forward(input));
    const at::Tensor input_gradient = backward(gradient);
    if (i + 1 < microbatches - warmup)
      input = links.send_backward_recv_forward(input_gradient);
    else
      links.send_backward(input_gradient);
  }
  for (int i = 0; i < warmup; ++i) links.send_backward(backward(links.recv_backward()));
  links.finish();
}

TEST(StageLinks, AHandWrittenScheduleEqualsOneProcess) {
  for (const bool negotiated : {false, true}) {
    const auto outcomes = run_threads(3, [&](Group& world) {
      const StackOptions options{.layers = 3, .widens = negotiated};
      const Stack mine(options), alone(options);
      MessageOptions messages{.dtype = DType::kF64};
      if (!negotiated) messages.sizes = {2, 4};
      StageLinks links(world, messages);
      for (const int microbatches : {5, 1, 3}) {
        one_forward_one_backward(links, mine, world.rank(), world.size(), microbatches);
        alone.alone(microbatches);
      }
      const at::Tensor &is = mine.weight(world.rank()).grad(), &should = alone.weight(world.rank()).grad();
      check((is - should).abs().max().item<double>() < 1e-12, "the gradient of stage ", world.rank());
    });
    EXPECT_EQ(describe(outcomes), "");
  }
}

// All directions at once, in a ring of values; and the ends of the pipeline, where nothing comes.
TEST(StageLinks, CombinedCallsDoNotWaitForOneAnother) {
  const auto outcomes = run_threads(3, [&](Group& world) {
    const int rank = world.rank();
    StageLinks links(world, {.sizes = {2}});
    const auto value = [](int from, int round) { return at::full({2}, float(10 * from + round)); };
    const auto expect = [&](const at::Tensor& came, int from, int round, const char* what) {
      const bool exists = from >= 0 && from < 3;
      check(came.defined() == exists, what, " on rank ", rank);
      if (exists) check(at::equal(came.detach(), value(from, round)), what, " on rank ", rank, ", round ", round);
    };
    for (int round = 0; round < 50; ++round) {
      const auto [forward, backward] =
          links.send_forward_backward_recv_forward_backward(value(rank, round), value(rank, round));
      expect(forward, rank - 1, round, "forward");
      expect(backward, rank + 1, round, "backward");
      if (forward.defined()) check(forward.requires_grad(), "what comes forward requires a gradient");
      if (backward.defined()) check(!backward.requires_grad(), "what comes back does not");
    }
    expect(links.send_forward_recv_forward(value(rank, 1)), rank - 1, 1, "forward");
    expect(links.send_backward_recv_backward(value(rank, 2)), rank + 1, 2, "backward");
    check(!links.send_forward_recv_forward(value(rank, 3), false).defined(), "nothing was to come");
    expect(links.recv_forward(), rank - 1, 3, "forward");
    check(links.is_first_stage() == (rank == 0) && links.is_last_stage() == (rank == 2), "the ends");
    links.finish();
  });
  EXPECT_EQ(describe(outcomes), "");
}

}  // namespace
}  // namespace tutti::test
