#include "tutti/data/clicks/planted.h"

#include <gmock/gmock.h>

#include <cmath>

#include "tutti/data/clicks/auc.h"

namespace tutti {
namespace {

using testing::HasSubstr;

TEST(ExpectedAuc, IsTheShareOfPairsInTheRightOrder) {
  const std::vector<float> score = {1, 5, 3, 3, 2, 7}, weight = {.1f, .9f, .5f, .4f, .3f, .6f};
  double right = 0, pairs = 0;
  for (std::size_t i = 0; i < score.size(); ++i) {
    for (std::size_t j = 0; j < score.size(); ++j) {
      if (i == j) continue;
      const double mass = double(weight[i]) * (1 - double(weight[j]));
      pairs += mass;
      right += mass * (score[i] > score[j] ? 1 : score[i] == score[j] ? 0.5 : 0);
    }
  }
  EXPECT_NEAR(expected_auc(score, weight), right / pairs, 1e-12);
  EXPECT_EQ(expected_auc(score, std::vector<float>{0, 1, 1, 1, 0, 1}), 1);
  EXPECT_EQ(expected_auc(score, std::vector<float>{1, 0, 0, 0, 1, 0}), 0);
  EXPECT_EQ(expected_auc(score, std::vector<float>(6, 1.f)), 0.5);
  EXPECT_EQ(expected_auc({}, {}), 0.5);
}

PlantedClicks clicks_of(PlantedClickOptions options = {}) {
  return PlantedClicks::create(std::move(options)).or_throw();
}

TEST(PlantedClicks, HaveTheLawThatWasAskedFor) {
  const PlantedClicks clicks = clicks_of({.click_rate = 0.1, .dense_strength = 0.3});
  constexpr int kSamples = 20000;
  double clicked = 0, dense = 0, dense_squares = 0, first_rows = 0;
  for (std::uint64_t sample = 0; sample < kSamples; ++sample) {
    const auto truth = clicks.truth(sample);
    clicked += truth.clicked;
    dense += truth.dense;
    dense_squares += truth.dense * truth.dense;
    first_rows += clicks.row(sample, 0) == 0;
  }
  EXPECT_NEAR(clicked / kSamples, 0.1, 0.01);
  EXPECT_NEAR(std::sqrt(dense_squares / kSamples - std::pow(dense / kSamples, 2)), 0.3, 0.01);
  EXPECT_NEAR(first_rows / kSamples, std::log(2) / std::log(51), 0.01);
}

TEST(PlantedClicks, TheBestIsKnownAndNeedsTheTables) {
  const PlantedBest best = best_on(clicks_of(), 1000, 20000);
  EXPECT_GT(best.auc, 0.75);
  EXPECT_LT(best.auc, 0.9);
  EXPECT_LT(best.dense_auc, best.auc - 0.1);
  EXPECT_GT(best.dense_auc, 0.6);
  EXPECT_NEAR(best.auc, best.auc_drawn, 0.01);
  EXPECT_NEAR(best.dense_auc, best.dense_auc_drawn, 0.015);
  const PlantedBest without = best_on(clicks_of({.table_strength = 0, .pair_strength = 0}), 0, 5000);
  EXPECT_EQ(without.auc, without.dense_auc);
}

TEST(PlantedClicks, PartsTogetherAreTheWholeAndTheSeedDecides) {
  const auto source = [](std::uint64_t seed, std::uint64_t first) {
    return make_planted_source(clicks_of({.rows = {5, 100, 3}, .dense_features = 2, .pairs = 1, .seed = seed}), first,
                               25, 10)
        .or_throw();
  };
  const auto read = [](ClickSource& from, std::int64_t batch, const BatchPart& part) {
    ClickBatch into;
    from.read(batch, part, into).or_throw();
    return into;
  };
  const auto data = source(1, 0);
  ASSERT_EQ(data->batches(), 3);
  EXPECT_EQ(data->samples(2), 5);
  const ClickBatch whole = read(*data, 1, BatchPart::whole(10, 3));
  const ClickBatch part = read(*data, 1, {.begin = 4, .end = 9, .tables = {2}});
  EXPECT_EQ(part.dense, std::vector(whole.dense.begin() + 8, whole.dense.begin() + 18));
  EXPECT_EQ(part.targets, std::vector(whole.targets.begin() + 4, whole.targets.begin() + 9));
  EXPECT_EQ(part.lookups.at(0).indices, whole.lookups[2].indices);
  EXPECT_EQ(part.lookups.at(0).offsets, whole.lookups[2].offsets);
  for (int table = 0; table < 3; ++table) {
    for (const std::int64_t row : whole.lookups[std::size_t(table)].indices)
      EXPECT_TRUE(row >= 0 && row < data->shape().rows[std::size_t(table)]);
  }
  EXPECT_EQ(read(*source(1, 10), 0, BatchPart::whole(10, 3)).dense, whole.dense);  // the same samples
  EXPECT_NE(read(*source(2, 0), 1, BatchPart::whole(10, 3)).dense, whole.dense);
}

TEST(PlantedClicks, RefuseWhatCannotBe) {
  const auto refusal = [](PlantedClickOptions options) {
    return to_string(PlantedClicks::create(std::move(options)).error());
  };
  EXPECT_THAT(refusal({.rows = {3, 0}}), HasSubstr("table 1 of 0 rows: from 1 to 2^31 can be made"));
  EXPECT_THAT(refusal({.rows = {3, 3}, .pairs = 2}), HasSubstr("2 pairs among 2 tables: at most 1"));
  EXPECT_THAT(refusal({.click_rate = 1}), HasSubstr("a click rate of 1: it must lie between 0 and 1"));
  EXPECT_THAT(refusal({.pair_strength = -1}), HasSubstr("a strength of -1"));
  EXPECT_THAT(refusal({.dense_features = -1}), HasSubstr("-1 dense features"));
  EXPECT_THAT(to_string(make_planted_source(clicks_of(), 0, 0, 5).error()), HasSubstr("both must be at least 1"));
}

}  // namespace
}  // namespace tutti
