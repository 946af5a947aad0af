#include "tutti/data/tokens/splits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tutti/base/error.h"

namespace tutti {
namespace {

using Ranges = std::array<SplitRange, 3>;

TEST(Splits, RoundTheSumsOfTheShares) {
  EXPECT_EQ(split_ranges("949,50,1", 1000), (Ranges{{{0, 949}, {949, 999}, {999, 1000}}}));
  EXPECT_EQ(split_ranges("969, 30, 1", 100), (Ranges{{{0, 97}, {97, 100}, {100, 100}}}));
  EXPECT_EQ(split_ranges("1", 7), (Ranges{{{0, 7}, {7, 7}, {7, 7}}}));
  EXPECT_EQ(split_ranges("1,1", 5), (Ranges{{{0, 2}, {2, 5}, {5, 5}}}));  // 2.5 to even
  EXPECT_EQ(split_ranges("0,0,2", 3), (Ranges{{{0, 0}, {0, 0}, {0, 3}}}));
}

TEST(Splits, ABlendKeepsItsProportions) {
  const BlendIndex index = blend(std::vector<double>{0.25, 0.75}, 8);
  EXPECT_EQ(std::count(index.dataset.begin(), index.dataset.end(), 0), 2);
  // By hand: errors at 0: .25, .75 -> 1; at 1: .25, -.25 -> 0; at 2: -.5, .5 -> 1; 3: -.25, .25 -> 1; 4: 0, 0 -> 0 ...
  EXPECT_EQ(index.dataset, (std::vector<std::int16_t>{1, 0, 1, 1, 0, 1, 1, 1}));
  EXPECT_EQ(index.sample, (std::vector<std::int64_t>{0, 0, 1, 2, 1, 3, 4, 5}));
  EXPECT_EQ(blend(std::vector<double>{3}, 2).sample, (std::vector<std::int64_t>{0, 1}));
  const BlendIndex same = blend(std::vector<double>{1, 3}, 8);
  EXPECT_EQ(same.dataset, index.dataset);
}

TEST(Splits, MistakesAreSentences) {
  const auto sentence = [](const std::function<void()>& act) {
    try {
      act();
    } catch (const Exception& error) {
      return error.error().detail;
    }
    return std::string("none");
  };
  EXPECT_EQ(sentence([] { split_ranges("1,2,3,4", 9); }),
            "--split 1,2,3,4: 4 numbers, expected up to three: train, validation, test");
  EXPECT_EQ(sentence([] { split_ranges("1,-2", 9); }), "--split 1,-2: \"-2\", expected a number, 0 or more");
  EXPECT_EQ(sentence([] { split_ranges("0,0", 9); }), "--split 0,0: all shares are 0");
  EXPECT_EQ(sentence([] { blend(std::vector<double>{0, 0}, 9); }), "blend: all weights are 0");
}

}  // namespace
}  // namespace tutti
