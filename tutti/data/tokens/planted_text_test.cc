#include "tutti/data/tokens/planted_text.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "tutti/base/error.h"

namespace tutti {
namespace {

int place(char letter) { return letter == ' ' ? 26 : letter - 'a'; }

TEST(PlantedText, HasTheEntropyThatItReports) {
  const PlantedText text({.seed = 3, .branches = 4, .length = 400000});
  const std::string all = text.document(0);
  double with_two = 0;
  std::array<double, 27> alone{};
  std::array<std::array<double, 27>, 27> pairs{};
  for (std::size_t i = 2; i < all.size(); ++i) {
    const double chance = text.chance(place(all[i - 2]), place(all[i - 1]), place(all[i]));
    ASSERT_GT(chance, 0);
    with_two -= std::log(chance);
    alone[std::size_t(place(all[i]))] += 1;
    pairs[std::size_t(place(all[i - 1]))][std::size_t(place(all[i]))] += 1;
  }
  const double count = double(all.size() - 2);
  double without = 0, with_one = 0;
  for (const double n : alone)
    if (n > 0) without -= n * std::log(n / count);
  for (const auto& row : pairs) {
    double sum = 0;
    for (const double n : row) sum += n;
    for (const double n : row)
      if (n > 0) with_one -= n * std::log(n / sum);
  }
  EXPECT_NEAR(with_two / count, text.entropy(), 0.005);
  EXPECT_NEAR(with_one / count, text.entropy_after_one(), 0.01);
  EXPECT_NEAR(without / count, text.entropy_alone(), 0.01);
  EXPECT_LT(text.entropy(), text.entropy_after_one());
  EXPECT_LT(text.entropy_after_one(), text.entropy_alone());
  // 8/15, 4/15, 2/15, 1/15
  EXPECT_NEAR(text.entropy(), std::log(15) - (8 * std::log(8) + 4 * std::log(4) + 2 * std::log(2)) / 15, 1e-12);
}

TEST(PlantedText, IsAFunctionOfItsSeed) {
  const PlantedText text({.seed = 3, .length = 1000}), longer({.seed = 3, .length = 2000}),
      other({.seed = 4, .length = 1000});
  EXPECT_EQ(text.document(5), longer.document(5).substr(0, 1000));
  EXPECT_NE(text.document(5), text.document(6));
  EXPECT_NE(text.document(5), other.document(5));
  EXPECT_EQ(text.document(5).size(), 1000u);
}

TEST(PlantedText, MistakesAreRefused) {
  EXPECT_THROW(PlantedText({.branches = 0}), Exception);
  EXPECT_THROW(PlantedText({.branches = 28}), Exception);
  EXPECT_THROW(PlantedText({.length = 1}), Exception);
  EXPECT_EQ(PlantedText({.branches = 1}).entropy(), 0);
}

}  // namespace
}  // namespace tutti
