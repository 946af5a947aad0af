#include "tutti/base/random.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tutti/base/random.h"

namespace tutti {

namespace {

TEST(RandomPlace, TheFirstPlaceHasTheSeedItself) { EXPECT_EQ(seed_at(42, {}), 42u); }

TEST(RandomPlace, EveryPlaceHasItsOwnSeed) {
  std::set<std::uint64_t> seeds, low_halves;
  for (std::int64_t seed = 0; seed < 3; ++seed)
    for (std::int64_t step = 0; step < 10; ++step)
      for (std::int64_t replica = 0; replica < 10; ++replica)
        for (std::int64_t micro_batch = 0; micro_batch < 10; ++micro_batch)
          for (std::int64_t layer = 0; layer < 10; ++layer) {
            const auto own = seed_at(std::uint64_t(seed),
                                     {.step = step, .replica = replica, .micro_batch = micro_batch, .layer = layer});
            seeds.insert(own);
            low_halves.insert(own & 0xFFFFFFFFu);
          }
  EXPECT_EQ(seeds.size(), 30000u);
  EXPECT_GT(low_halves.size(), 29980u) << "a Mersenne twister takes the low 32 bits only";
}

TEST(RandomPlace, CoordinatesAreNotInterchangeable) {
  EXPECT_NE(seed_at(1, {.step = 2}), seed_at(1, {.replica = 2}));
  EXPECT_NE(seed_at(1, {.step = 2}), seed_at(2, {.step = 1}));
}

}  // namespace

// The golden values come from numpy.random.RandomState.

namespace {

using testing::ElementsAre;

TEST(NumpyRandom, DrawsUniformsAndNormals) {
  NumpyRandom random(123);
  for (const double expected : {0.6964691855978616, 0.28613933495037946, 0.2268514535642031, 0.5513147690828912})
    EXPECT_EQ(random.uniform(), expected);
  for (const double expected :
       {-0.5786002519685364, 1.651436537097151, -2.426679243393074, -0.42891262885617726, 1.265936258705534})
    EXPECT_DOUBLE_EQ(random.normal(), expected);
  EXPECT_EQ(random.uniform(), 0.4385722446796244);  // the second normal of the pair is still kept
  EXPECT_EQ(random.uniform(), 0.05967789660956835);
  EXPECT_DOUBLE_EQ(random.normal(3, 0.5), 2.5666297988674494);
  EXPECT_DOUBLE_EQ(random.normal(3, 0.5), 3.745694813062144);
}

TEST(NumpyRandom, SkipsAsIfItHadDrawn) {
  NumpyRandom random(123);
  random.skip_uniform(100003);
  EXPECT_EQ(random.uniform(), 0.6837574896447369);
  for (const int count : {0, 1, 311, 312, 313, 623, 624, 1000}) {
    for (const int before : {0, 1, 311, 312}) {
      NumpyRandom skipped(9), drawn(9);
      (void)skipped.bits(), (void)drawn.bits();
      for (int i = 0; i < before; ++i) (void)skipped.uniform(), (void)drawn.uniform();
      skipped.skip_uniform(std::uint64_t(count));
      for (int i = 0; i < count; ++i) (void)drawn.uniform();
      EXPECT_EQ(skipped.bits(), drawn.bits()) << before << ", then " << count;
    }
  }
  EXPECT_EQ(NumpyRandom(4294967295u).uniform(), 0.0976320289940138);
}

TEST(NumpyRandom, DrawsIntegers) {
  NumpyRandom random(123);
  const auto draw = [&](int count, std::int64_t low, std::int64_t high) {
    std::vector<std::int64_t> drawn;
    for (int i = 0; i < count; ++i) drawn.push_back(random.integer(low, high));
    return drawn;
  };
  EXPECT_THAT(draw(8, 0, 10), ElementsAre(2, 2, 6, 1, 3, 9, 6, 1));
  EXPECT_THAT(draw(4, -5, 3), ElementsAre(-5, -4, 1, 2));
  EXPECT_THAT(draw(3, 0, std::int64_t(1) << 40), ElementsAre(315254969888, 750018615520, 478133587353));
  EXPECT_THAT(draw(2, 0, std::int64_t(1) << 32), ElementsAre(1883653459, 1051233102));
  EXPECT_THAT(draw(1, 7, 8), ElementsAre(7));  // uses no word
  EXPECT_EQ(random.uniform(), 0.05967789660956835);
}

TEST(NumpyRandom, PermutesAndShuffles) {
  NumpyRandom random(7);
  EXPECT_THAT(random.permutation(10), ElementsAre(8, 5, 0, 2, 1, 9, 7, 3, 6, 4));
  std::vector<int> values = {0, 10, 20, 30, 40};
  random.shuffle(std::span(values));
  EXPECT_THAT(values, ElementsAre(30, 10, 0, 40, 20));
  EXPECT_EQ(random.integer(0, 1000), 998);
  EXPECT_TRUE(random.permutation(0).empty());
}

}  // namespace

}  // namespace tutti
