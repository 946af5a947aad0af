#include "tutti/base/random_place.h"

#include <gtest/gtest.h>

#include <set>

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

TEST(RandomPlace, CoordinatesDoNotStandForEachOther) {
  EXPECT_NE(seed_at(1, {.step = 2}), seed_at(1, {.replica = 2}));
  EXPECT_NE(seed_at(1, {.step = 2}), seed_at(2, {.step = 1}));
}

}  // namespace
}  // namespace tutti
