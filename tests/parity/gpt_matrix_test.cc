// Every grid of up to eight ranks trains as one process: tp {1, 2, 4} x pp {1, 2, 4} x dp {1, 2} x cp {1, 2} x one or
// two stages on each rank x sequence parallelism x recomputation x schedule, all that fit together. In f64, to 1e-10
// (gpt_grid.h).
//
// What recomputes also has dropout and a token whose loss does not count, so both are seen on every grid.
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "tests/parity/gpt_grid.h"

namespace tutti::gpt {
namespace {

// By the words of the documentation, not by the code that refuses.
bool should_fit(const Combination& c) {
  const bool chunked = c.schedule == ScheduleKind::kInterleaved || c.schedule == ScheduleKind::kZeroBubbleV;
  if (c.sequence_parallel && c.tensor == 1) return false;  // there is nothing to divide
  return chunked ? c.chunks == 2 && c.pipeline > 1 : c.chunks == 1;
}

struct GridSizes {
  int tensor, pipeline, data, context;
  int ranks() const { return tensor * pipeline * data * context; }
};

std::vector<GridSizes> grids() {
  std::vector<GridSizes> all;
  for (const int tensor : {1, 2, 4})
    for (const int pipeline : {1, 2, 4})
      for (const int data : {1, 2})
        for (const int context : {1, 2})
          if (const GridSizes grid{tensor, pipeline, data, context}; grid.ranks() <= 8) all.push_back(grid);
  return all;
}

std::vector<Combination> combinations(const GridSizes& grid) {
  std::vector<Combination> all;
  for (const int chunks : {1, 2})
    for (const bool sequence_parallel : {false, true})
      for (const bool recompute : {false, true})
        for (const ScheduleKind schedule : kScheduleKinds)
          all.push_back(
              {grid.tensor, grid.pipeline, grid.data, grid.context, chunks, sequence_parallel, recompute, schedule});
  return all;
}

std::vector<Combination> fitting(const GridSizes& grid) {
  std::vector<Combination> all = combinations(grid);
  std::erase_if(all, [](const Combination& c) { return !should_fit(c); });
  return all;
}

class GptMatrix : public ::testing::TestWithParam<GridSizes> {};

void expect_trains_as_one_process(const GridSizes& grid, const std::vector<Combination>& all) {
  at::set_num_threads(1);  // a rank is a thread
  ASSERT_FALSE(all.empty());
  std::map<std::pair<int, bool>, Reference> references;
  for (const Combination& c : all) {
    Reference& made = references[{layers_of(c), c.recompute}];
    if (made.empty()) made = reference_of(layers_of(c), c.recompute);
    for (const StepRecord& record : made) ASSERT_GT(record.norm, 2 * kClip) << "nothing would be clipped";
  }
  Findings findings;
  const auto outcomes = test::run_threads(grid.ranks(),
                                          [&](Group& world) {
                                            for (const Combination& c : all) {
                                              try {
                                                train(c, references.at({layers_of(c), c.recompute}), world, findings);
                                              } catch (const std::exception& error) {
                                                throw std::runtime_error(c.text() + ": " + error.what());
                                              }
                                              findings.ran();
                                            }
                                          },
                                          {.watchdog = 600});
  EXPECT_EQ(test::describe(outcomes), "");
  EXPECT_EQ(findings.failures(), "");
  EXPECT_EQ(findings.runs(), int(all.size()) * grid.ranks()) << "a combination was left out";
  fmt::print("{} combinations, {}\n", all.size(), findings.worst());
}

TEST_P(GptMatrix, TrainsAsOneProcess) { expect_trains_as_one_process(GetParam(), fitting(GetParam())); }

// Alone, with data, context and tensor parallelism.
TEST_P(GptMatrix, TrainsAsOneProcessFullySharded) {
  const GridSizes grid = GetParam();
  if (grid.pipeline > 1) return;  // rejected
  std::vector<Combination> all = fitting(grid);
  std::erase_if(all, [](const Combination& c) { return c.schedule != ScheduleKind::kOneForwardOneBackward; });
  for (Combination& c : all) c.fully_shard = true;
  expect_trains_as_one_process(grid, all);
}

INSTANTIATE_TEST_SUITE_P(Grids, GptMatrix, ::testing::ValuesIn(grids()), [](const auto& info) {
  const GridSizes& grid = info.param;
  return fmt::format("tp{}_pp{}_dp{}_cp{}", grid.tensor, grid.pipeline, grid.data, grid.context);
});

// So that none is lost unnoticed: what fits is counted, and all else is refused in a sentence.
TEST(GptMatrixItself, HasAllThatFits) {
  int fit = 0, refused = 0;
  for (const GridSizes& grid : grids())
    for (const Combination& c : combinations(grid)) {
      const auto options = for_world(options_of(c), c.ranks());
      EXPECT_EQ(options.ok(), should_fit(c))
          << c.text() << ": " << (options.ok() ? "fits" : to_string(options.error()));
      ++(options.ok() ? fit : refused);
    }
  EXPECT_EQ(grids().size(), 23u);
  EXPECT_EQ(fit, 278);
  EXPECT_EQ(refused, 23 * 40 - 278);
}

}  // namespace
}  // namespace tutti::gpt
