// The text that a model continues is the same alone, without any group, and on every rank of a grid.
#include "tutti/models/transformer/generate.h"

#include <gmock/gmock.h>

#include "tests/harness/ranks.h"
#include "tutti/models/transformer/transformer.h"
#include "tutti/parallel/pipeline/tied_weights.h"
#include "tutti/planning/schedules/schedule.h"

namespace tutti {
namespace {

TEST(Generate, IsTheSameAloneAndOnAGrid) {
  TransformerConfig config{.layers = 2, .hidden = 16, .heads = 4, .vocabulary = 257, .sequence_length = 8};
  config.precision = Precision::kF64;
  config.initial_deviation = 0.5;
  const auto tokenizer = byte_tokenizer();
  const GenerateOptions options{.prompt = "ranks", .tokens = 12, .temperature = 0.8, .top_k = 30};
  Transformer alone(config);
  alone.eval();
  const std::string text = generate(alone, *tokenizer, options);
  EXPECT_TRUE(text.starts_with("ranks"));
  EXPECT_GT(text.size(), 5u);
  for (const GridOptions& grid : {GridOptions{.tensor = 2, .pipeline = 2}, GridOptions{.tensor = 2, .context = 2}}) {
    const auto outcomes = test::run_threads(4, [&](Group& world) {
      const Parallel parallel = make_parallel(world, grid);
      const auto schedule = make_schedule(ScheduleKind::kOneForwardOneBackward, {.ranks = grid.pipeline});
      Transformer model(
          config, parallel,
          {.stages = stages_of_rank(schedule, even_stages(config.layers, grid.pipeline), parallel.pipeline.rank())});
      if (const at::Tensor tied = model.tied_weight(); tied.defined()) tie_weight(parallel.embedding, tied);
      model.eval();
      test::check(generate(model, *tokenizer, options) == text, "the text of one process");
    });
    EXPECT_EQ(test::describe(outcomes), "");
  }
}

}  // namespace
}  // namespace tutti
