// Golden values: Debian 12's python3-torch (1.13), torch.randperm and torch.utils.data.DistributedSampler.
#include "tutti/data/sampler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <numeric>

#include "tutti/base/error.h"
#include "tutti/data/permutation.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using Indices = std::vector<std::int64_t>;

// h = (h * 1000003 + v) mod (2^61 - 1) over the values, as computed in Python.
std::uint64_t digest(const Indices& values) {
  unsigned __int128 h = 0;
  for (auto v : values) h = (h * 1000003 + std::uint64_t(v)) % ((std::uint64_t(1) << 61) - 1);
  return std::uint64_t(h);
}

TEST(RandomPermutation, EqualsTorchRandperm) {
  EXPECT_THAT(random_permutation(0, 0), ElementsAre());
  EXPECT_THAT(random_permutation(1, 0), ElementsAre(0));
  EXPECT_THAT(random_permutation(2, 0), ElementsAre(0, 1));
  EXPECT_THAT(random_permutation(2, 1), ElementsAre(1, 0));
  EXPECT_THAT(random_permutation(10, 0), ElementsAre(4, 1, 7, 5, 3, 9, 0, 8, 6, 2));
  EXPECT_THAT(random_permutation(10, 7), ElementsAre(5, 0, 3, 4, 1, 7, 9, 6, 8, 2));
  EXPECT_THAT(random_permutation(17, 1), ElementsAre(2, 12, 11, 13, 10, 6, 0, 8, 16, 9, 14, 4, 3, 7, 15, 5, 1));
}

TEST(RandomPermutation, InterpretsSeedsLikeTorch) {
  EXPECT_THAT(random_permutation(10, std::uint64_t(-1)), ElementsAre(1, 4, 6, 2, 0, 5, 8, 7, 9, 3));
  EXPECT_THAT(random_permutation(10, (std::uint64_t(1) << 33) + 5), ElementsAre(1, 4, 9, 6, 3, 5, 0, 2, 8, 7));
}

TEST(RandomPermutation, EqualsTorchRandpermOfWholeDatasets) {
  EXPECT_EQ(digest(random_permutation(60000, 0)), 551397334697904847u);
  EXPECT_EQ(digest(random_permutation(60000, 1)), 1887708510167325423u);
  EXPECT_EQ(digest(random_permutation(100003, 123456789)), 331515912432663596u);
}

struct Golden {
  std::size_t size;
  int world;
  SamplerOptions options;
  std::int64_t epoch;
  std::vector<Indices> by_rank;
};

TEST(DistributedSampler, EqualsTorchOnEveryRank) {
  const Golden cases[] = {
      {10, 3, {.shuffle = true}, 0, {{4, 5, 0, 2}, {1, 3, 8, 4}, {7, 9, 6, 1}}},
      {10, 3, {.shuffle = true, .drop_last = true}, 0, {{4, 5, 0}, {1, 3, 8}, {7, 9, 6}}},
      {10, 4, {.shuffle = true, .seed = 5}, 2, {{5, 1, 8}, {0, 7, 2}, {3, 9, 5}, {4, 6, 0}}},
      {3, 7, {.shuffle = true, .seed = 1}, 0, {{1}, {2}, {0}, {1}, {2}, {0}, {1}}},
      {2, 7, {.shuffle = true, .seed = 1}, 0, {{1}, {0}, {1}, {0}, {1}, {0}, {1}}},
      {10, 3, {.shuffle = false}, 0, {{0, 3, 6, 9}, {1, 4, 7, 0}, {2, 5, 8, 1}}},
      {11, 4, {.shuffle = false, .drop_last = true}, 0, {{0, 4}, {1, 5}, {2, 6}, {3, 7}}},
      {12, 4, {.shuffle = true, .seed = 9, .drop_last = true}, 1, {{5, 1, 3}, {2, 9, 8}, {4, 11, 10}, {7, 0, 6}}},
      {2, 7, {.shuffle = true, .drop_last = true}, 0, {{}, {}, {}, {}, {}, {}, {}}},
      {0, 2, {.shuffle = true}, 0, {{}, {}}},
  };
  for (const auto& golden : cases) {
    for (int rank = 0; rank < golden.world; ++rank) {
      DistributedSampler sampler(golden.size, rank, golden.world, golden.options);
      sampler.set_epoch(golden.epoch);
      EXPECT_EQ(sampler.indices(), golden.by_rank[rank])
          << golden.size << " samples, rank " << rank << " of " << golden.world;
      EXPECT_EQ(sampler.size(), golden.by_rank[rank].size());
    }
  }
}

TEST(DistributedSampler, TakesBatchesUntilTheEpochEnds) {
  DistributedSampler sampler(10, 1, 3, {.shuffle = true});
  EXPECT_THAT(sampler.take(3), ElementsAre(1, 3, 8));
  EXPECT_EQ(sampler.remaining(), 1u);
  EXPECT_THAT(sampler.take(3), ElementsAre(4));
  EXPECT_THAT(sampler.take(3), ElementsAre());
  sampler.set_epoch(0);
  EXPECT_THAT(sampler.take(1), ElementsAre(1));
}

TEST(DistributedSampler, AnEpochHasItsOwnOrder) {
  DistributedSampler sampler(100, 0, 1);
  const auto first = sampler.indices();
  sampler.set_epoch(1);
  EXPECT_NE(sampler.indices(), first);
  EXPECT_EQ(sampler.indices(), random_permutation(100, 1));
}

TEST(DistributedSampler, ResumesWithinAnEpoch) {
  DistributedSampler before(101, 2, 4, {.seed = 3});
  before.set_epoch(5);
  before.take(7);
  DistributedSampler after(101, 2, 4, {.seed = 3});
  after.restore(before.state());
  EXPECT_EQ(after.indices(), before.indices());
  EXPECT_EQ(after.remaining(), before.size() - 7);
}

TEST(DistributedSampler, ResumesWithAnotherNumberOfRanks) {
  Indices seen;
  SamplerState state;
  for (int rank = 0; rank < 4; ++rank) {
    DistributedSampler sampler(60, rank, 4);
    for (auto i : sampler.take(6)) seen.push_back(i);
    state = sampler.state();
  }
  for (int rank = 0; rank < 3; ++rank) {
    DistributedSampler sampler(60, rank, 3);
    sampler.restore(state);
    for (auto i : sampler.indices()) seen.push_back(i);
  }
  std::sort(seen.begin(), seen.end());
  Indices all(60);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
}

TEST(DistributedSampler, TakesRankAndSizeFromAGroup) {
  struct Ranks {
    int rank() const { return 1; }
    int size() const { return 2; }
  };
  EXPECT_THAT(DistributedSampler(5, Ranks{}, {.shuffle = false}).indices(), ElementsAre(1, 3, 0));
}

TEST(DistributedSampler, RejectsARankOutsideTheWorld) {
  try {
    DistributedSampler(10, 3, 3);
    FAIL() << "accepted";
  } catch (const Exception& e) {
    EXPECT_THAT(e.what(), testing::HasSubstr("rank 3 of a world of 3 ranks"));
  }
}

}  // namespace
}  // namespace tutti
