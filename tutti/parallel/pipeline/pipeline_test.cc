#include "tutti/parallel/pipeline/pipeline.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/harness/ranks.h"
#include "tutti/comm/mesh_groups.h"
#include "tutti/parallel/pipeline/test_stack.h"
#include "tutti/parallel/pipeline/tied_weights.h"
#include "tutti/parallel/recompute.h"

namespace tutti::test {
namespace {

using ::testing::HasSubstr;

std::string words(const Schedule& schedule) {
  return std::string(name(schedule.kind)) + " p" + std::to_string(schedule.shape.ranks) + " m" +
         std::to_string(schedule.shape.microbatches) + " v" + std::to_string(schedule.shape.chunks);
}

// How many chunks a schedule is tried with.
std::vector<int> chunks_for(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kInterleaved:
      return {2, 3};
    case ScheduleKind::kZeroBubbleV:
      return {2};
    case ScheduleKind::kFillDrain:
    case ScheduleKind::kOneForwardOneBackward:
    case ScheduleKind::kZeroBubbleH1:
      break;
  }
  return {1};
}

void expect_near(const at::Tensor& is, const at::Tensor& should, const std::string& where) {
  check(is.defined(), where, ": no gradient");
  check(should.abs().max().item<double>() > 1e-12, where, ": the gradient is too small to tell anything");
  const double off = (is - should).abs().max().item<double>() / should.abs().max().item<double>();
  check(off < 1e-10, where, ": off by ", off);
}

// This rank's part of a step against one process.
void expect_as_alone(const Group& world, const Schedule& schedule, const StackOptions& options, PipelineOptions with,
                     const StepOptions& step = {}) {
  const std::string where = words(schedule) + ", rank " + std::to_string(world.rank());
  const Stack mine(options), alone(options);
  const std::vector<double> losses = alone.alone(schedule.shape.microbatches, step);
  with.broadcast_losses = true;
  with.messages.dtype = DType::kF64;
  if (!options.widens) with.messages.sizes = {options.rows, 4};
  const int layers = options.layers / schedule.shape.stages();
  Pipeline pipeline(world, chunks_of(mine, schedule, world.rank(), layers), with);
  const StepResult result = pipeline.run(schedule, step);
  check(result.losses.size() == losses.size(), where, ": ", result.losses.size(), " losses");
  for (std::size_t m = 0; m < losses.size(); ++m)
    check(std::abs(result.losses[m] - losses[m]) < 1e-10, where, ": loss ", losses[m], ", is ", result.losses[m]);
  for (int i = 0; i < options.layers; ++i) {
    const bool is_mine = schedule.rank_of(i / layers) == world.rank();
    if (is_mine) expect_near(mine.weight(i).grad(), alone.weight(i).grad(), where + ", layer " + std::to_string(i));
    if (!is_mine) check(!mine.weight(i).grad().defined(), where, ": layer ", i, " is another rank's");
  }
  const int kept = simulate(schedule).most_kept(world.rank());
  check(result.most_kept == kept, where, ": kept ", result.most_kept, " at once, expected ", kept);
}

class OnRanks : public ::testing::TestWithParam<int> {};

TEST_P(OnRanks, EveryScheduleEqualsOneProcess) {
  const auto outcomes = run_threads(GetParam(), [&](Group& world) {
    at::set_num_threads(1);
    for (const ScheduleKind kind : kScheduleKinds)
      for (const int chunks : chunks_for(kind))
        for (int m = 1; m <= 8; ++m) {
          const Schedule schedule = make_schedule(kind, {.ranks = world.size(), .microbatches = m, .chunks = chunks});
          const int stages = schedule.shape.stages();
          expect_as_alone(world, schedule, {.layers = stages, .put_off = true}, {});
          if (m % 3 == 0)
            expect_as_alone(world, schedule, {.layers = 2 * stages, .widens = true, .put_off = m == 3}, {},
                            {.weights = std::vector<double>(std::size_t(m), 0.3), .scale = 8});
        }
  });
  EXPECT_EQ(describe(outcomes), "");
}
INSTANTIATE_TEST_SUITE_P(Pipeline, OnRanks, ::testing::Values(1, 2, 3, 4));

// Larger groups of microbatches, and more chunks than ranks.
TEST(Pipeline, OddShapesOfInterleaved) {
  const auto outcomes = run_threads(2, [&](Group& world) {
    for (const PipelineShape& shape : {PipelineShape{.ranks = 2, .microbatches = 7, .chunks = 2, .microbatch_group = 3},
                                       PipelineShape{.ranks = 2, .microbatches = 3, .chunks = 5}})
      expect_as_alone(world, make_schedule(ScheduleKind::kInterleaved, shape), {.layers = shape.stages()}, {});
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(Pipeline, OverSockets) {
  const auto outcomes = run_processes(
      3,
      [&](Group& world) {
        at::set_num_threads(1);
        for (const ScheduleKind kind : {ScheduleKind::kInterleaved, ScheduleKind::kZeroBubbleV}) {
          const Schedule schedule = make_schedule(kind, {.ranks = 3, .microbatches = 5, .chunks = 2});
          for (const bool widens : {false, true})
            expect_as_alone(world, schedule, {.layers = 6, .widens = widens, .put_off = true, .rows = 3000}, {});
        }
      },
      {.transport = "tcp"});
  EXPECT_EQ(describe(outcomes), "");
}

TEST(Pipeline, ForwardsAlone) {
  const auto outcomes = run_threads(3, [&](Group& world) {
    for (const ScheduleKind kind : kScheduleKinds) {
      const int chunks = chunks_for(kind)[0];
      const Schedule schedule =
          make_schedule(kind, {.ranks = 3, .microbatches = 4, .chunks = chunks, .forward_only = true});
      const StackOptions options{.layers = 3 * chunks};
      const Stack mine(options);
      Pipeline pipeline(world, chunks_of(mine, schedule, world.rank()),
                        {.messages = {.dtype = DType::kF64, .sizes = {2, 4}}});
      const StepResult result = pipeline.run(schedule);
      const bool last = schedule.rank_of(schedule.shape.stages() - 1) == world.rank();
      check(result.losses.size() == (last ? 4u : 0u), "losses on rank ", world.rank(), ": ", result.losses.size());
      const auto expected = Stack(options).alone(4);
      for (std::size_t m = 0; last && m < 4; ++m) check(std::abs(result.losses[m] - expected[m]) < 1e-12, "loss ", m);
      for (int i = 0; i < options.layers; ++i) check(!mine.weight(i).grad().defined(), "a gradient");
      check(result.most_kept == 0, "kept ", result.most_kept);
    }
  });
  EXPECT_EQ(describe(outcomes), "");
}

// Steps of different shapes one after another; gradients add up.
TEST(Pipeline, TrainsAndEvaluatesInTurn) {
  const auto outcomes = run_threads(2, [&](Group& world) {
    const StackOptions options{.layers = 2};
    const Stack mine(options), alone(options);
    const auto schedule = [](int microbatches, bool forward_only) {
      return make_schedule(ScheduleKind::kOneForwardOneBackward,
                           {.ranks = 2, .microbatches = microbatches, .forward_only = forward_only});
    };
    Pipeline pipeline(world, chunks_of(mine, schedule(1, false), world.rank()), {.messages = {.dtype = DType::kF64}});
    for (const int microbatches : {4, 2, 3}) {
      pipeline.run(schedule(microbatches, false));
      pipeline.run(schedule(5, true));
      alone.alone(microbatches);
    }
    expect_near(mine.weight(world.rank()).grad(), alone.weight(world.rank()).grad(), "the sum of three steps");
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(Pipeline, CallsHooksBeforeAndAfterTheLastBackwardOfAChunk) {
  const Schedule schedule = make_schedule(ScheduleKind::kZeroBubbleV, {.ranks = 2, .microbatches = 3, .chunks = 2});
  const auto outcomes = run_threads(2, [&](Group& world) {
    const Stack mine({.layers = 4, .put_off = true}), alone({.layers = 4});
    alone.alone(3);
    std::string heard;
    const auto is_complete = [&](int chunk) {
      const int stage = schedule.stage_of(world.rank(), chunk);
      const at::Tensor is = mine.weight(stage).grad();
      return is.defined() && at::allclose(is, alone.weight(stage).grad(), 1e-9, 1e-15);
    };
    PipelineOptions options{.messages = {.dtype = DType::kF64, .sizes = {2, 4}}, .record_times = true};
    options.before_last_backward = [&](int chunk) {
      heard += "<" + std::to_string(chunk);
      check(!is_complete(chunk), "complete before the last backward, chunk ", chunk);
    };
    options.after_last_backward = [&](int chunk) {
      heard += std::to_string(chunk) + ">";
      check(is_complete(chunk), "not complete after the last backward, chunk ", chunk);
    };
    Pipeline pipeline(world, chunks_of(mine, schedule, world.rank()), options);
    const StepResult result = pipeline.run(schedule);
    for (const char* word : {"<0", "0>", "<1", "1>"})
      check(heard.size() == 8 && heard.find(word) != std::string::npos, "rank ", world.rank(), " heard ", heard);

    const Timeline measured = measured_timeline(world, schedule, result.times), simulated = simulate(schedule);
    for (int rank = 0; rank < 2; ++rank)
      check(measured.most_kept(rank) == simulated.most_kept(rank) &&
                measured.ranks[std::size_t(rank)].size() == simulated.ranks[std::size_t(rank)].size(),
            "the measured timeline of rank ", rank);
    check(measured.length() > 0 && measured.busy(0) > 0, "no time passed");
  });
  EXPECT_EQ(describe(outcomes), "");
}

// Bytes, counted: every tanh keeps its result, which the product after it takes in; so a chunk of L layers keeps its
// input (the first stage's is data, made in the chunk) and L results.
TEST(Pipeline, KeepsWhatTheFormulaSays) {
  const auto outcomes = run_threads(4, [&](Group& world) {
    const Schedule schedule = make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = 4, .microbatches = 8});
    const Stack stack({.layers = 12, .rows = 50});
    const PipelineOptions options{.messages = {.dtype = DType::kF64, .sizes = {50, 4}}, .count_bytes = true};
    constexpr std::int64_t kOne = 50 * 4 * 8, kLoss = 8;
    const int rank = world.rank();
    const StepResult plain = Pipeline(world, chunks_of(stack, schedule, rank, 3), options).run(schedule);
    // The loss keeps the difference, besides.
    const std::int64_t expected = plain.most_kept * (rank == 3 ? 5 * kOne : 4 * kOne);
    check(plain.most_kept == 4 - rank, "kept ", plain.most_kept);
    check(std::abs(plain.most_bytes - expected) <= plain.most_kept * kLoss, "rank ", rank, ": ", plain.most_bytes,
          " bytes, expected ", expected);
    // Recomputed: the input alone, and the state of the random generator.
    const int begin = 3 * rank;
    const Chunk again = [&](int microbatch, const at::Tensor& input) {
      const at::Tensor from = input.defined() ? input : stack.data(microbatch);
      return recompute(
          [&stack, begin, microbatch](const at::Tensor& x) {
            at::Tensor y = x;
            for (int i = begin; i < begin + 3; ++i) y = stack.layer(i, y);
            return begin + 3 == 12 ? (y - Stack::values(y.sizes(), 200 + microbatch)).square().mean() : y;
          },
          from);
    };
    const StepResult slim = Pipeline(world, {again}, options).run(schedule);
    constexpr std::int64_t kRandomState = 6000;
    check(slim.most_bytes >= slim.most_kept * kOne && slim.most_bytes <= slim.most_kept * (kOne + kRandomState),
          "rank ", rank, ": ", slim.most_bytes, " bytes with recomputation");
  });
  EXPECT_EQ(describe(outcomes), "");
}

// An output that nobody but the next stage needs is let go of when it was sent.
TEST(Pipeline, FreesOutputs) {
  const auto outcomes = run_threads(2, [&](Group& world) {
    const Schedule schedule = make_schedule(ScheduleKind::kFillDrain, {.ranks = 2, .microbatches = 6});
    const at::Tensor weight = Stack::values({4, 100}, 1).requires_grad_();
    const Chunk first = [&](int microbatch, const at::Tensor&) {
      return Stack::values({50, 4}, microbatch).matmul(weight);
    };
    const Chunk last = [](int, const at::Tensor& input) { return input.sum(); };
    Pipeline pipeline(world, {world.rank() == 0 ? first : last},
                      {.messages = {.dtype = DType::kF64, .sizes = {50, 100}}, .count_bytes = true});
    const StepResult result = pipeline.run(schedule);
    const std::int64_t expected = 6 * (world.rank() == 0 ? 50 * 4 * 8 : 50 * 100 * 8 + 8);
    check(std::abs(result.most_bytes - expected) <= 6 * 16, "rank ", world.rank(), ": ", result.most_bytes,
          " bytes, expected ", expected);
  });
  EXPECT_EQ(describe(outcomes), "");
}

// Of activations that a tensor group has alike each rank sends its part: here they are not alike, so that it shows.
TEST(Pipeline, PartsAreSentOverTheTensorGroup) {
  const auto outcomes = run_threads(4, [&](Group& world) {
    const MeshGroups groups = split(world, Mesh({{"pp", 2}, {"tp", 2}})).or_throw();
    const Group &pp = groups.along("pp"), &tp = groups.along("tp");
    const Schedule schedule = make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = 2, .microbatches = 3});
    for (const bool negotiated : {false, true})
      for (const std::int64_t columns : {4, 3}) {  // 2 x 3 is even, 1 x 3 is not: it travels whole
        const std::int64_t rows = columns == 4 ? 2 : 1;
        const at::Tensor one = at::ones({}, at::kDouble).requires_grad_();
        const Chunk first = [&](int microbatch, const at::Tensor&) {
          return at::full({rows, columns}, double(10 * microbatch + tp.rank()), at::kDouble) * one;
        };
        const Chunk last = [&](int microbatch, const at::Tensor& input) {
          at::Tensor expected = at::full({rows * columns}, 10.0 * microbatch + tp.rank(), at::kDouble);
          if (columns == 4)
            expected.slice(0, 0, 4).fill_(10 * microbatch), expected.slice(0, 4, 8).fill_(10 * microbatch + 1);
          check(at::equal(input.detach().view({-1}), expected), "the input of microbatch ", microbatch);
          return input.sum();
        };
        MessageOptions messages{.dtype = DType::kF64, .split_over = tp};
        if (!negotiated) messages.sizes = {rows, columns};
        Pipeline(pp, {pp.rank() == 0 ? first : last}, {.messages = messages}).run(schedule);
        if (pp.rank() == 0) {
          const double sum = 10.0 * (0 + 1 + 2) / 3 + tp.rank();
          check(std::abs(one.grad().item<double>() - double(rows * columns) * sum) < 1e-12, "gradient ",
                one.grad().item<double>());
        }
      }
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(Pipeline, HalfPrecisionIsSent) {
  const auto outcomes = run_threads(2, [&](Group& world) {
    const Schedule schedule = make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = 2, .microbatches = 2});
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const at::Tensor weight = at::full({4}, 1.5, dtype == DType::kF32 ? at::kFloat : at::kBFloat16).requires_grad_();
      const Chunk first = [&](int microbatch, const at::Tensor&) { return weight * (microbatch + 1); };
      const Chunk last = [](int, const at::Tensor& input) { return input.to(at::kFloat).sum(); };
      const StepResult result =
          Pipeline(world, {world.rank() == 0 ? first : last}, {.messages = {.dtype = dtype}}).run(schedule);
      if (world.rank() == 0) check(at::equal(weight.grad(), at::full_like(weight.detach(), 1.5)), "the gradient");
      if (world.rank() == 1) check(result.losses == std::vector<double>{6, 12}, "the losses");
    }
  });
  EXPECT_EQ(describe(outcomes), "");
}

// Every rank's error, of a step in which `chunk` runs on rank 1 of 3.
std::vector<Outcome> with_chunk(const Chunk& chunk, const PipelineOptions& options = {}) {
  return run_threads(3,
                     [&](Group& world) {
                       const Schedule schedule =
                           make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = 3, .microbatches = 4});
                       const Stack stack({.layers = 3});
                       auto chunks = chunks_of(stack, schedule, world.rank());
                       if (world.rank() == 1) chunks[0] = chunk;
                       PipelineOptions with = options;
                       with.messages.dtype = DType::kF64;
                       Pipeline(world, chunks, with).run(schedule);
                     },
                     {.timeout = 1000});
}

TEST(Pipeline, AStageThatThrowsIsReportedByAllRanks) {
  const auto outcomes = with_chunk([](int microbatch, const at::Tensor& input) {
    if (microbatch == 2) throw std::runtime_error("no more tea\nand a stack");
    return input * 2;
  });
  for (const Outcome& outcome : outcomes) {
    EXPECT_FALSE(outcome.hung);
    EXPECT_THAT(outcome.error, HasSubstr("stage 1, F2 (microbatch 2) threw: no more tea"));
    EXPECT_THAT(outcome.error, ::testing::Not(HasSubstr("and a stack")));
  }
}

TEST(Pipeline, AStageThatThrowsInBackwardToo) {
  const auto outcomes = with_chunk([](int microbatch, const at::Tensor& input) {
    at::Tensor output = input * 2;
    if (microbatch == 1)
      output.register_hook([](const at::Tensor& gradient) {
        if (gradient.defined()) throw std::runtime_error("the milk is sour");
        return gradient;
      });
    return output;
  });
  for (const Outcome& outcome : outcomes)
    EXPECT_THAT(outcome.error, HasSubstr("stage 1, B1 (microbatch 1) threw: the milk is sour"));
}

TEST(Pipeline, WhatAChunkMayNotReturn) {
  struct Case {
    Chunk chunk;
    std::string words;
    PipelineOptions options = {};
  };
  const Case cases[] = {
      {[](int, const at::Tensor&) { return at::Tensor(); }, "stage 1, F0 (microbatch 0) returned an undefined tensor"},
      {[](int, const at::Tensor&) { return at::ones({2}, at::kLong); },
       "stage 1, F0 (microbatch 0) returned i64[2], expected an output"},
      {[](int, const at::Tensor& input) { return input.to(at::kFloat); },
       "the output of stage 1 for microbatch 0 is f32[2, 4], agreed was f64"},
      {[](int, const at::Tensor& input) { return input.slice(1, 0, 3); },
       "the output of stage 1 for microbatch 0 is f64[2, 3], agreed was f64[2, 4]",
       {.messages = {.sizes = {2, 4}}}},
      {[](int, const at::Tensor& input) { return input.detach() * 2; },
       "stage 1, B0 (microbatch 0): the input got no gradient"},
  };
  for (const Case& one : cases) {
    const auto outcomes = with_chunk(one.chunk, one.options);
    for (const Outcome& outcome : outcomes) EXPECT_THAT(outcome.error, HasSubstr(one.words));
  }
}

TEST(Pipeline, TheLastStageReturnsALossToLearnFrom) {
  const auto error = [](const Chunk& chunk) {
    return run_threads(1,
                       [&](Group& world) {
                         Pipeline(world, {chunk})
                             .run(make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = 1, .microbatches = 1}));
                       })[0]
        .error;
  };
  EXPECT_THAT(error([](int, const at::Tensor&) { return at::ones({3}); }),
              HasSubstr("stage 0, F0 (microbatch 0) returned f32[3] on the last stage, expected the loss, one number"));
  EXPECT_THAT(error([](int, const at::Tensor&) { return at::ones({}); }),
              HasSubstr("a loss that nothing can learn from"));
}

TEST(Pipeline, WhatDoesNotFitIsRefused) {
  const auto error = [](const PipelineShape& shape, std::vector<Chunk> chunks, const StepOptions& step) {
    return run_threads(1,
                       [&](Group& world) {
                         Pipeline(world, std::move(chunks))
                             .run(make_schedule(ScheduleKind::kOneForwardOneBackward, shape), step);
                       })[0]
        .error;
  };
  const Chunk any = [](int, const at::Tensor& input) { return input; };
  EXPECT_THAT(error({.ranks = 2}, {any}, {}), HasSubstr("a schedule of 2 ranks on group world, which has 1"));
  EXPECT_THAT(error({}, {any, any}, {}), HasSubstr("a schedule of 1 chunks a rank, this rank has 2"));
  EXPECT_THAT(error({}, {any}, {.weights = {1, 1}}), HasSubstr("2 weights for 1 microbatches"));
  EXPECT_THAT(error({}, {}, {}), HasSubstr("this rank has no chunk"));
  EXPECT_THAT(error({}, {Chunk()}, {}), HasSubstr("a chunk without a function"));
}

TEST(Pipeline, SchedulesThatDifferAreReported) {
  const auto outcomes = run_threads(2, [&](Group& world) {
    const Schedule schedule = make_schedule(world.rank() == 0 ? ScheduleKind::kFillDrain : ScheduleKind::kZeroBubbleH1,
                                            {.ranks = 2, .microbatches = 3 + world.rank()});
    const Stack stack({.layers = 2});
    Pipeline(world, chunks_of(stack, schedule, world.rank())).run(schedule);
  });
  for (const Outcome& outcome : outcomes)
    EXPECT_THAT(outcome.error,
                HasSubstr("Pipeline::run: the schedule is fill-drain of 2 ranks, 3 microbatches, 1 chunks "
                          "on rank 0, but zb-h1 of 2 ranks, 4 microbatches, 1 chunks on rank 1"));
}

TEST(Pipeline, AScheduleThatOneRankChangesLaterIsReportedByAll) {
  const auto outcomes = run_threads(
      3,
      [&](Group& world) {
        const auto schedule = [](int microbatches) {
          return make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = 3, .microbatches = microbatches});
        };
        const Stack stack({.layers = 3});
        Pipeline pipeline(world, chunks_of(stack, schedule(4), world.rank()), {.messages = {.dtype = DType::kF64}});
        pipeline.run(schedule(4));
        pipeline.run(schedule(world.rank() == 1 ? 3 : 4));
      },
      {.timeout = 1000});
  for (const Outcome& outcome : outcomes)
    EXPECT_THAT(outcome.error, HasSubstr("1f1b of 3 ranks, 4 microbatches, 1 chunks on rank 0, but 1f1b of 3 ranks, "
                                         "3 microbatches, 1 chunks on rank 1"));
}

TEST(Pipeline, MessagesThatAreSplitDifferentlyAreReported) {
  const auto outcomes = run_threads(4, [&](Group& world) {
    // Stages are 0 and 1, 2 and 3; `pairs` are those who have the same stage.
    const Group stages = world.new_subgroups(std::vector<std::vector<int>>{{0, 2}, {1, 3}}, "pp").or_throw();
    const Group pairs = world.new_subgroups(std::vector<std::vector<int>>{{0, 1}, {2, 3}}, "tp").or_throw();
    const Group crossed = world.new_subgroups(std::vector<std::vector<int>>{{0, 1}, {3, 2}}, "crossed").or_throw();
    const Schedule schedule = make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = 2, .microbatches = 2});
    const Stack stack({.layers = 2});
    const auto error = [&](const Group& split) -> std::string {
      MessageOptions messages{.dtype = DType::kF64, .sizes = {2, 4}, .split_over = split};
      try {
        Pipeline(stages, chunks_of(stack, schedule, stages.rank()), {.messages = messages}).run(schedule);
      } catch (const std::exception& thrown) {
        return thrown.what();
      }
      return "";
    };
    const std::string apart = error(stages.rank() == 0 ? pairs : crossed);
    const std::string first = std::to_string(world.rank() % 2), second = std::to_string(1 - world.rank() % 2);
    check(apart.find("part " + first + " of 2 of each tensor on rank 0, but part " + second + " of 2 of each tensor") !=
              std::string::npos,
          "other parts: ", apart);
  });
  EXPECT_EQ(describe(outcomes), "");

  const auto halves = run_threads(4, [&](Group& world) {
    const Group stages = world.new_subgroups(std::vector<std::vector<int>>{{0, 2}, {1, 3}}, "pp").or_throw();
    const Group pairs = world.new_subgroups(std::vector<std::vector<int>>{{0, 1}, {2, 3}}, "tp").or_throw();
    const Schedule schedule = make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = 2, .microbatches = 2});
    const Stack stack({.layers = 2});
    MessageOptions messages{.dtype = DType::kF64, .sizes = {2, 4}};
    if (stages.rank() == 1) messages.split_over = pairs;
    Pipeline(stages, chunks_of(stack, schedule, stages.rank()), {.messages = messages}).run(schedule);
  });
  for (const int rank : {0, 3})
    EXPECT_THAT(halves[std::size_t(rank)].error,
                HasSubstr("what is sent (MessageOptions::split_over) is whole tensors on rank 0, but part " +
                          std::to_string(rank % 2) + " of 2 of each tensor on rank 1"));
}

// Embedding on the first stage, head on the last one, one weight: as in one process that has it once.
TEST(TiedWeights, StayEqual) {
  const auto outcomes = run_threads(3, [&](Group& world) {
    const std::vector<int> ends{0, 2};
    const Group embedding = world.new_group(ends).or_throw();
    const Schedule schedule = make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = 3, .microbatches = 4});
    const at::Tensor ids = at::arange(3, at::kLong);
    const auto logits = [](const at::Tensor& x, const at::Tensor& table) {
      return x.matmul(table.t()).square().mean();
    };
    at::Tensor table = Stack::values({5, 4}, 1 + world.rank()).requires_grad_();
    tie_weight(embedding, table);
    const Chunk chunks[] = {[&](int m, const at::Tensor&) { return at::embedding(table, ids + m % 2); },
                            [](int, const at::Tensor& input) { return at::tanh(input); },
                            [&](int, const at::Tensor& input) { return logits(input, table); }};
    Pipeline(world, {chunks[world.rank()]}, {.messages = {.dtype = DType::kF64, .sizes = {3, 4}}}).run(schedule);
    sum_tied_gradients(embedding, table);

    const at::Tensor alone = Stack::values({5, 4}, 1).requires_grad_();
    for (int m = 0; m < 4; ++m) (logits(at::tanh(at::embedding(alone, ids + m % 2)), alone) / 4).backward();
    if (world.rank() == 1) {
      check(!table.grad().defined(), "a gradient in the middle");
      return;
    }
    check(at::equal(table.detach(), alone.detach()), "the copies differ at the start");
    expect_near(table.grad(), alone.grad(), "the tied gradient");
  });
  EXPECT_EQ(describe(outcomes), "");
}

TEST(TiedWeights, ARankWithoutAGradientCountsAsZeros) {
  const auto outcomes = run_threads(2, [&](Group& world) {
    const at::Tensor weight = at::ones({3}).requires_grad_();
    if (world.rank() == 0) weight.sum().backward();
    sum_tied_gradients(world, weight);
    check(at::equal(weight.grad(), at::ones({3})), "rank ", world.rank());
    sum_tied_gradients(Group(), weight);
    check(at::equal(weight.grad(), at::ones({3})), "without a group");
  });
  EXPECT_EQ(describe(outcomes), "");
}

}  // namespace
}  // namespace tutti::test
