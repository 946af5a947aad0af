// The golden values are those of dlrm_s_pytorch.py with --numpy-rand-seed=123.
#include "tutti/data/clicks/random.h"

#include <gmock/gmock.h>

#include <cmath>
#include <set>

#include "tutti/data/clicks/clicks_testing.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::FloatNear;
using testing::HasSubstr;
using testing::Pointwise;

std::vector<std::vector<std::int64_t>> bags(const Lookups& lookups) {
  std::vector<std::vector<std::int64_t>> result;
  for (std::int64_t sample = 0; sample < lookups.samples(); ++sample) {
    const auto at = lookups.indices.begin();
    result.emplace_back(at + lookups.offsets[std::size_t(sample)], at + lookups.offsets[std::size_t(sample) + 1]);
  }
  return result;
}

std::unique_ptr<ClickSource> source_of(RandomClickOptions options) {
  return make_random_clicks(std::move(options)).or_throw();
}

RandomClickOptions small() {
  RandomClickOptions options;
  options.shape = {4, {4, 3, 2}};
  options.samples = 6;
  options.batch_size = 2;
  return options;
}

RandomClickOptions gaussian() {
  RandomClickOptions options;
  options.shape = {2, {20, 30}};
  options.samples = 6;
  options.batch_size = 3;
  options.indices_per_lookup = 6;
  options.distribution = IndexDistribution::kGaussian;
  options.minimum = 2;
  options.maximum = 15;
  options.deviation = 4;
  return options;
}

TEST(RandomClicks, AreThoseOfTheReference) {
  const auto source = source_of(small());
  ASSERT_EQ(source->batches(), 3);
  const ClickBatch first = read_whole(*source, 0);
  EXPECT_THAT(first.dense,
              Pointwise(FloatNear(5e-6), {.69647, .28614, .22685, .55131, .71947, .42311, .98076, .68483}));
  EXPECT_THAT(bags(first.lookups[0]), ElementsAre(ElementsAre(1), ElementsAre(0, 1)));
  EXPECT_THAT(bags(first.lookups[1]), ElementsAre(ElementsAre(0), ElementsAre(1)));
  EXPECT_THAT(bags(first.lookups[2]), ElementsAre(ElementsAre(1), ElementsAre(0)));
  EXPECT_THAT(first.targets, Pointwise(FloatNear(5e-6), {.36179, .22826}));
  EXPECT_THAT(read_whole(*source, 1).targets, Pointwise(FloatNear(5e-6), {.60306, .54507}));
  EXPECT_THAT(read_whole(*source, 2).targets, Pointwise(FloatNear(5e-6), {.55679, .15896}));
}

TEST(RandomClicks, GaussianRowsAreThoseOfTheReference) {
  const auto source = source_of(gaussian());
  const ClickBatch first = read_whole(*source, 0), second = read_whole(*source, 1);
  EXPECT_THAT(bags(first.lookups[0]), ElementsAre(ElementsAre(2, 4, 6, 7, 15), ElementsAre(14), ElementsAre(5)));
  EXPECT_THAT(bags(first.lookups[1]), ElementsAre(ElementsAre(15), ElementsAre(10, 11, 14, 15), ElementsAre(3, 11)));
  EXPECT_THAT(first.targets, ElementsAre(0.2937140464782715f, 0.630976140499115f, 0.0921049416065216f));
  EXPECT_THAT(bags(second.lookups[0]), ElementsAre(ElementsAre(4, 5, 8, 9, 11), ElementsAre(7, 12), ElementsAre(8, 9)));
  EXPECT_THAT(bags(second.lookups[1]),
              ElementsAre(ElementsAre(4, 9, 9), ElementsAre(3, 4, 13), ElementsAre(9, 11, 15)));
  EXPECT_THAT(second.targets, ElementsAre(0.5859365463256836f, 0.6249035000801086f, 0.6746890544891357f));
}

TEST(RandomClicks, ABatchIsTheSameWhateverWasReadBefore) {
  for (RandomClickOptions options : {small(), gaussian()}) {
    options.samples = 150 * 2 + 1;
    options.batch_size = 2;
    const auto source = source_of(options);
    std::vector<ClickBatch> in_order;
    for (std::int64_t batch = 0; batch < source->batches(); ++batch) in_order.push_back(read_whole(*source, batch));
    EXPECT_EQ(source->samples(150), 1);
    for (const std::int64_t batch : {150, 0, 149, 64, 63, 65, 128, 1}) {
      const ClickBatch fresh = read_whole(*source_of(options), batch), again = read_whole(*source, batch);
      for (const ClickBatch* other : {&fresh, &again}) {
        EXPECT_EQ(other->dense, in_order[std::size_t(batch)].dense);
        EXPECT_EQ(other->targets, in_order[std::size_t(batch)].targets);
        EXPECT_EQ(other->lookups[1].indices, in_order[std::size_t(batch)].lookups[1].indices);
      }
    }
  }
}

TEST(RandomClicks, AllPartsTogetherAreTheWhole) {
  for (RandomClickOptions options : {small(), gaussian()}) {
    for (const bool fixed : {false, true}) {
      options.samples = 14;
      options.batch_size = 7;
      options.fixed_indices = fixed;
      const auto source = source_of(options);
      const ClickBatch whole = read_whole(*source, 1);
      const ClickBatch left = read_part(*source, 1, {.begin = 0, .end = 3, .tables = {1}});
      const ClickBatch right = read_part(*source, 1, {.begin = 3, .end = 7, .tables = {0, 1, 0}});
      std::vector<float> dense = left.dense, targets = left.targets;
      dense.insert(dense.end(), right.dense.begin(), right.dense.end());
      targets.insert(targets.end(), right.targets.begin(), right.targets.end());
      EXPECT_EQ(dense, whole.dense);
      EXPECT_EQ(targets, whole.targets);
      EXPECT_EQ(left.samples, 7);
      EXPECT_EQ(left.lookups.at(0).indices, whole.lookups[1].indices);
      EXPECT_EQ(right.lookups.at(0).indices, whole.lookups[0].indices);
      EXPECT_EQ(right.lookups.at(1).offsets, whole.lookups[1].offsets);
      EXPECT_EQ(right.lookups.at(2).offsets, whole.lookups[0].offsets);
    }
  }
}

// However a bag is sorted, it is what numpy's unique() makes of the draws.
TEST(RandomClicks, BagsAreSortedAndUnique) {
  for (const std::int64_t rows : {std::int64_t(40), std::int64_t(1000), std::int64_t(1) << 40}) {
    for (const std::int64_t draws : {1, 2, 50, 64, 65, 300}) {
      RandomClickOptions options;
      options.shape = {0, {rows}};
      options.samples = options.batch_size = 20;
      options.indices_per_lookup = draws;
      options.fixed_indices = true;
      NumpyRandom random(123);
      for (const auto& bag : bags(read_whole(*source_of(options), 0).lookups[0])) {
        std::set<std::int64_t> expected;
        for (std::int64_t i = 0; i < draws; ++i)
          expected.insert(std::int64_t(std::nearbyint(random.uniform() * double(rows - 1))));
        EXPECT_EQ(bag, std::vector(expected.begin(), expected.end())) << draws << " of " << rows;
      }
    }
  }
}

TEST(RandomClicks, RoundsTargetsAndTakesTheNumberOfBatches) {
  RandomClickOptions options = small();
  options.batches = 5;
  options.batch_size = 3;
  options.round_targets = true;
  const auto source = source_of(options);
  EXPECT_EQ(source->batches(), 5);
  EXPECT_EQ(source->samples(4), 3);
  for (const float target : read_whole(*source, 4).targets) EXPECT_TRUE(target == 0 || target == 1);
}

TEST(RandomClicks, RefuseWhatCannotBe) {
  const auto refusal = [](RandomClickOptions options) { return to_string(make_random_clicks(options).error()); };
  RandomClickOptions options = gaussian();
  options.maximum = 20;
  EXPECT_THAT(refusal(options), HasSubstr("gaussian rows from 2 to 20 do not lie in table 0, which has rows 0 to 19"));
  options.minimum = 21;
  EXPECT_THAT(refusal(options), HasSubstr("--rand-data-min must not be above --rand-data-max"));
  options = small();
  options.batch_size = 0;
  EXPECT_THAT(refusal(options), HasSubstr("--mini-batch-size is at least 1"));
  options = small();
  options.samples = 0;
  EXPECT_THAT(refusal(options), HasSubstr("--data-size is at least 1"));
  options = small();
  options.indices_per_lookup = 0;
  EXPECT_THAT(refusal(options), HasSubstr("--num-indices-per-lookup is at least 1"));
  options = small();
  options.shape.rows[1] = 0;
  EXPECT_THAT(refusal(options), HasSubstr("table 1 has 0 rows"));
}

TEST(RandomClicks, RefusePartsThatAreNone) {
  const auto source = source_of(small());
  ClickBatch into;
  const auto refusal = [&](std::int64_t batch, BatchPart part) {
    return to_string(source->read(batch, part, into).error());
  };
  EXPECT_THAT(refusal(3, {}), HasSubstr("there is no batch 3: the data has 3"));
  EXPECT_THAT(refusal(-1, {}), HasSubstr("there is no batch -1"));
  EXPECT_THAT(refusal(0, {.begin = 1, .end = 3}),
              HasSubstr("samples 1 up to 3 of batch 0 were asked for, which has 2"));
  EXPECT_THAT(refusal(0, {.tables = {3}}), HasSubstr("there is no table 3: the data has 3"));
}

}  // namespace
}  // namespace tutti
