#include "tutti/planning/stage_layers.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>

#include "tutti/base/error.h"
#include "tutti/planning/schedules/schedule.h"

namespace tutti {
namespace {

using Ranges = std::vector<LayerRange>;

TEST(StageLayers, Even) {
  EXPECT_EQ(even_stages(8, 4), (Ranges{{0, 2}, {2, 4}, {4, 6}, {6, 8}}));
  EXPECT_EQ(even_stages(7, 3), (Ranges{{0, 3}, {3, 5}, {5, 7}}));
  EXPECT_EQ(even_stages(1, 1), (Ranges{{0, 1}}));
}

TEST(StageLayers, OfTheEnds) {
  EXPECT_EQ(stages_with_ends(8, 4, {.first = 1, .last = 0}), (Ranges{{0, 1}, {1, 5}, {5, 8}, {8, 8}}));
  EXPECT_EQ(stages_with_ends(8, 3, {.first = {}, .last = 1}), (Ranges{{0, 4}, {4, 7}, {7, 8}}));
  EXPECT_EQ(stages_with_ends(3, 2, {.first = 0, .last = 3}), (Ranges{{0, 0}, {0, 3}}));
}

// Compares with all ends, and with the even split.
TEST(StageLayers, BalancedEndsAreOptimal) {
  int moved = 0;
  for (int layers = 1; layers <= 12; ++layers)
    for (int stages = 1; stages <= std::min(layers, 6); ++stages)
      for (const StageCost first : {StageCost{}, StageCost{1, 0.1}, StageCost{1, 2.6}, StageCost{1.7, 0.1}})
        for (const StageCost last :
             {StageCost{}, StageCost{1, 1}, StageCost{1, 3.3}, StageCost{1, 40}, StageCost{0.3, 1}})
          for (const StageCost middle : {StageCost{}, StageCost{0.5, 0}}) {
            const auto dearest = [&](const Ranges& ranges) {
              double most = stages == 1 ? 0 : std::max(first.of(ranges.front().size()), last.of(ranges.back().size()));
              for (int i = 1; i < stages - 1; ++i) most = std::max(most, middle.of(ranges[std::size_t(i)].size()));
              return most;
            };
            const EndLayers ends = balanced_ends(layers, stages, first, middle, last);
            const double even = dearest(even_stages(layers, stages));
            double least = even;
            for (int f = 0; stages > 1 && f <= layers; ++f)
              for (int l = 0; f + l <= layers - (stages - 2); ++l)
                if (stages > 2 || f + l == layers)
                  least = std::min(least, dearest(stages_with_ends(layers, stages, {.first = f, .last = l})));
            ASSERT_NEAR(dearest(stages_with_ends(layers, stages, ends)), least, 1e-6) << layers << " of " << stages;
            EXPECT_EQ(ends.is_even(), even <= least + 1e-6);
            moved += !ends.is_even();
          }
  EXPECT_GT(moved, 500);
}

TEST(StageLayers, Given) {
  EXPECT_EQ(given_stages(5, std::vector{0, 3, 2}), (Ranges{{0, 0}, {0, 3}, {3, 5}}));
  EXPECT_EQ(given_stages(5, std::vector{5}), (Ranges{{0, 5}}));
}

// Compares with all possible splits, for up to 9 layers.
TEST(StageLayers, BalancedIsOptimal) {
  std::uint32_t state = 1;
  const auto random = [&] { return state = state * 1664525u + 1013904223u, double(state >> 24) / 16; };
  for (int layers = 1; layers <= 9; ++layers)
    for (int stages = 1; stages <= layers; ++stages) {
      std::vector<double> costs(layers);
      std::generate(costs.begin(), costs.end(), random);
      const std::function<double(int, int)> least = [&](int begin, int left) {
        if (left == 1) return std::accumulate(costs.begin() + begin, costs.end(), 0.0);
        double best = std::numeric_limits<double>::infinity();
        for (int end = begin + 1; end <= layers - left + 1; ++end)
          best = std::min(
              best, std::max(std::accumulate(costs.begin() + begin, costs.begin() + end, 0.0), least(end, left - 1)));
        return best;
      };
      const auto ranges = balanced_stages(costs, stages);
      ASSERT_EQ(int(ranges.size()), stages);
      double dearest = 0;
      int next = 0;
      for (const LayerRange& range : ranges) {
        EXPECT_EQ(range.begin, next);
        EXPECT_GE(range.size(), 1);
        dearest = std::max(dearest, std::accumulate(costs.begin() + range.begin, costs.begin() + range.end, 0.0));
        next = range.end;
      }
      EXPECT_EQ(next, layers);
      EXPECT_NEAR(dearest, least(0, stages), 1e-9);
    }
}

TEST(StageLayers, AnEmbeddingThatCostsTwoLayers) {
  EXPECT_EQ(balanced_stages(std::vector<double>{2, 1, 1, 1, 1, 2}, 4), (Ranges{{0, 1}, {1, 3}, {3, 5}, {5, 6}}));
}

TEST(StageLayers, ARankHasTheStagesThatTheScheduleGivesIt) {
  const Schedule v = make_schedule(ScheduleKind::kZeroBubbleV, {.ranks = 2, .microbatches = 4, .chunks = 2});
  const Ranges ranges{{0, 2}, {2, 3}, {3, 4}, {4, 5}};
  const auto first = stages_of_rank(v, ranges, 0), second = stages_of_rank(v, ranges, 1);
  ASSERT_EQ(first.size(), 2u);
  EXPECT_EQ(first[0].layers, ranges[0]);
  EXPECT_TRUE(first[0].is_first && !first[0].is_last);
  EXPECT_EQ(first[1].layers, ranges[3]) << "a V ends where it begins";
  EXPECT_TRUE(first[1].is_last && !first[1].is_first);
  EXPECT_EQ(second[0].layers, ranges[1]);
  EXPECT_EQ(second[1].layers, ranges[2]);
  EXPECT_FALSE(second[0].is_first || second[1].is_last);
}

TEST(StageLayers, MistakesAreExplained) {
  const auto sentence = [](const std::function<void()>& act) {
    try {
      act();
    } catch (const Exception& error) {
      return error.error().detail;
    }
    return std::string("none");
  };
  EXPECT_EQ(
      sentence([] { even_stages(3, 4); }),
      "pipeline: 3 layers are not enough for 4 stages: each needs one at least, so choose at most 3 stages (ranks x "
      "chunks)");
  EXPECT_EQ(sentence([] {
              given_stages(5, std::vector{2, 0, 3});
            }),
            "pipeline: stage 1 was given 0 layers, expected 1 or more: it would have no parameters");
  EXPECT_EQ(sentence([] {
              given_stages(5, std::vector{2, 2});
            }),
            "pipeline: the stages were given 4 layers in all, the model has 5");
  EXPECT_EQ(sentence([] { stages_with_ends(4, 1, {.first = 4, .last = {}}); }),
            "pipeline: layers are given to the first or the last stage, and there is one stage");
  EXPECT_EQ(sentence([] { stages_with_ends(4, 3, {.first = 2, .last = 3}); }),
            "pipeline: the first and the last stage are given 5 layers, and the model has 4");
  EXPECT_EQ(
      sentence([] { stages_with_ends(4, 4, {.first = 2, .last = 1}); }),
      "pipeline: the first and the last stage leave 1 of 4 layers to the other 2 stages, expected one each or more");
  EXPECT_EQ(sentence([] { stages_with_ends(4, 2, {.first = 2, .last = 1}); }),
            "pipeline: the two stages are given 3 layers in all, and the model has 4");
  EXPECT_EQ(sentence([] {
              balanced_stages(std::vector<double>{1, -1}, 2);
            }).substr(0, 36),
            "pipeline: layer 1 has a cost of -1.0");
}

}  // namespace
}  // namespace tutti
