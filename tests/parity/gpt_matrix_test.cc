// Every grid of up to eight ranks (gpt_matrix.h) trains as one process. In f64, to 1e-10 (gpt_grid.h).
#include "tests/parity/gpt_matrix.h"

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

namespace tutti::gpt {
namespace {

class GptMatrix : public ::testing::TestWithParam<GridSizes> {};

void expect_trains_as_one_process(const GridSizes& grid, const std::vector<Combination>& all) {
  at::set_num_threads(1);  // a rank is a thread
  ASSERT_FALSE(all.empty());
  const References references = references_of(all);
  for (const auto& [of, steps] : references)
    for (const StepRecord& record : steps) ASSERT_GT(record.norm, 2 * kClip) << "nothing would be clipped";
  Findings findings;
  const auto outcomes = test::run_threads(
      grid.ranks(), [&](Group& world) { train_all(all, references, world, findings); }, {.watchdog = 600});
  EXPECT_EQ(test::describe(outcomes), "");
  EXPECT_EQ(findings.failures(), "");
  EXPECT_EQ(findings.runs(), int(all.size()) * grid.ranks()) << "a combination was left out";
  fmt::print("{} combinations, {}\n", all.size(), findings.worst());
}

TEST_P(GptMatrix, TrainsAsOneProcess) { expect_trains_as_one_process(GetParam(), fitting(GetParam())); }

TEST_P(GptMatrix, TrainsAsOneProcessFullySharded) {
  const std::vector<Combination> all = fitting_fully_sharded(GetParam());
  if (!all.empty()) expect_trains_as_one_process(GetParam(), all);
}

INSTANTIATE_TEST_SUITE_P(Grids, GptMatrix, ::testing::ValuesIn(grids()),
                         [](const auto& info) { return info.param.name(); });

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
