// What a GPT's layers keep for backward, counted, against the closed forms of tutti/planning/training/memory.cc, by
// which the planner decides what fits. Statistics of norms and of softmax, a few numbers a row, are in no formula.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/harness/ranks.h"
#include "tutti/models/gpt/model.h"
#include "tutti/parallel/pipeline/pipeline.h"
#include "tutti/planning/training/memory.h"

namespace tutti::gpt {
namespace {

struct Case {
  const char* name;
  int tensor = 1, pipeline = 1, chunks = 1, microbatches = 1;
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  bool sequence_parallel = false, recompute = false, bf16 = false;

  int layers() const { return std::max(2, pipeline * chunks); }
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

// What is recomputed keeps the state of the random generator, 5 KB a layer: that must not count.
int micro_batch_of(const Case& c) { return c.recompute ? 4 : 2; }

Options options_of(const Case& c) {
  Options options;
  auto& shape = options.model;
  shape.layers = c.layers();
  shape.hidden = 128;
  shape.heads = shape.query_groups = 4;
  shape.head_size = 32;
  shape.ffn = 512;
  shape.vocabulary = 128;
  shape.sequence_length = shape.positions = 128;
  options.model.vocabulary_divisible_by = 1;
  options.model.attention_dropout = options.model.hidden_dropout = 0.1;
  options.batches.micro_batch = micro_batch_of(c);
  options.batches.global_batch = micro_batch_of(c) * c.microbatches;
  auto& parallel = options.parallel;
  parallel.grid = {.tensor = c.tensor, .pipeline = c.pipeline};
  parallel.schedule = c.schedule;
  parallel.chunks = c.chunks;
  parallel.sequence_parallel = c.sequence_parallel;
  if (c.bf16) options.model.precision = Precision::kBF16;
  if (c.recompute) parallel.recompute = {.method = RecomputeMethod::kUniform, .layers = 1};
  return options;
}

double bytes_by_formula(const Case& c, const Options& options, int rank) {
  const auto& parallel = options.parallel;
  const ParallelPlan plan{.tensor = c.tensor,
                          .pipeline = c.pipeline,
                          .micro_batch = micro_batch_of(c),
                          .schedule = c.schedule,
                          .chunks = c.chunks,
                          .sequence_parallel = parallel.sequence_parallel,
                          .recompute = c.recompute ? Recomputation::kFull : Recomputation::kNone};
  const planning::RankMemory memory =
      planning::memory_of_rank(options.model, plan, tutti_runtime(options.model.precision), c.microbatches, rank);
  return memory.activations + memory.head;
}

std::int64_t counted_bytes(const Case& c, const Options& options, const Group& world) {
  const Parallel groups = make_parallel(world, options);
  const auto model = make_model(groups, options);
  model->train();
  const at::Tensor tokens =
      at::arange(128 * micro_batch_of(c), at::kLong).remainder(128).view({128, micro_batch_of(c)});
  const MicroBatch batch{.tokens = tokens, .targets = tokens.add(1).remainder(128)};
  std::vector<Chunk> chunks;
  for (int chunk = 0; chunk < c.chunks; ++chunk)
    chunks.push_back([&, chunk](int, const at::Tensor& input) { return model->forward(chunk, batch, input); });
  Pipeline pipeline(groups.pipeline, chunks,
                    {.messages = {.sizes = model->activation_sizes(options.batches.micro_batch)}, .count_bytes = true});
  return pipeline.run(pipeline_schedule(options, c.microbatches, false)).most_bytes;
}

class ActivationMemory : public ::testing::TestWithParam<Case> {};

TEST_P(ActivationMemory, IsThatOfTheFormula) {
  at::set_num_threads(1);  // a rank is a thread
  const Case c = GetParam();
  const int ranks = c.tensor * c.pipeline;
  const Options options = for_world(options_of(c), ranks).or_throw();
  std::vector<std::int64_t> counted(std::size_t(ranks), 0);
  const auto outcomes = test::run_threads(
      ranks, [&](Group& world) { counted[std::size_t(world.rank())] = counted_bytes(c, options, world); },
      {.watchdog = 300});
  EXPECT_EQ(test::describe(outcomes), "");
  for (int rank = 0; rank < ranks; ++rank) {
    const int stage = rank / c.tensor;
    const double formula = bytes_by_formula(c, options, stage), count = double(counted[std::size_t(rank)]);
    fmt::print("{}, stage {}: formula {:.0f} KiB, counted {:.0f} KiB, ratio {:.3f}\n", c.name, stage, formula / 1024,
               count / 1024, count / formula);
    EXPECT_GE(count, 0.99 * formula) << "rank " << rank;
    EXPECT_LE(count, 1.05 * formula) << "rank " << rank;
  }
}

constexpr auto kInterleaved = ScheduleKind::kInterleaved;
constexpr auto kFillDrain = ScheduleKind::kFillDrain;
INSTANTIATE_TEST_SUITE_P(
    Layouts, ActivationMemory,
    ::testing::Values(
        Case{.name = "Alone"}, Case{.name = "Recomputed", .recompute = true}, Case{.name = "Tp2", .tensor = 2},
        Case{.name = "Tp4", .tensor = 4}, Case{.name = "Tp2Sequence", .tensor = 2, .sequence_parallel = true},
        Case{.name = "Tp4Sequence", .tensor = 4, .sequence_parallel = true},
        Case{.name = "Tp2SequenceRecomputed", .tensor = 2, .sequence_parallel = true, .recompute = true},
        Case{.name = "FillDrain", .pipeline = 2, .microbatches = 4, .schedule = kFillDrain},
        Case{.name = "OneForwardOneBackward", .pipeline = 4, .microbatches = 4},
        Case{.name = "Interleaved", .pipeline = 3, .chunks = 2, .microbatches = 6, .schedule = kInterleaved},
        Case{.name = "OneForwardOneBackwardRecomputed", .pipeline = 4, .microbatches = 4, .recompute = true},
        Case{.name = "InterleavedTp2Sequence",
             .tensor = 2,
             .pipeline = 2,
             .chunks = 2,
             .microbatches = 4,
             .schedule = kInterleaved,
             .sequence_parallel = true},
        Case{.name = "BF16", .bf16 = true},
        Case{.name = "Tp2SequenceBF16", .tensor = 2, .sequence_parallel = true, .bf16 = true}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace tutti::gpt
