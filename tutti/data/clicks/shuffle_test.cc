#include "tutti/data/clicks/shuffle.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tutti/data/clicks/clicks_testing.h"
#include "tutti/data/clicks/packed.h"

namespace tutti {
namespace {

constexpr std::int64_t kShuffledSamples = 700000, kTraining = 600000;  // more than two buckets

// Sample i has the counts i and, in both tables, row i; in two days.
class Shuffle : public testing::Test {
 protected:
  void SetUp() override {
    PackedWriter writer = PackedWriter::create(folder_.file("from"), 32, 2, 2).or_throw();
    ClickColumns columns(32, 2);
    for (std::int32_t i = 0; i < kShuffledSamples; ++i) {
      columns.labels.push_back(i % 2);
      columns.dense.insert(columns.dense.end(), 32, i);
      for (auto& column : columns.ids) column.push_back(std::uint32_t(i));
    }
    writer.append(columns).or_throw();
    writer.finish({0, kTraining, kShuffledSamples}, {kShuffledSamples, kShuffledSamples}).or_throw();
    header_ = writer.header();
  }

  std::vector<std::int64_t> order(std::uint64_t memory, int threads, std::uint32_t seed) {
    const std::string name = folder_.file("to" + std::to_string(++made_));
    PackedWriter writer = PackedWriter::create(name, 32, 2, 2).or_throw();
    NumpyRandom random(seed);
    double last = 0;
    shuffle_samples(PlacedFile::open(folder_.file("from")).or_throw(), header_, writer, random,
                    {.randomize = Randomize::kTotal,
                     .memory = memory,
                     .threads = threads,
                     .scratch_path = folder_.file("scratch"),
                     .progress = [&](double share) { last = share; }})
        .or_throw();
    EXPECT_EQ(last, 1);
    writer.finish(header_.day_begins, header_.rows).or_throw();
    const auto source =
        open_packed_clicks({.path = name, .split = ClickSplit::kAll, .batch_size = kShuffledSamples}).or_throw();
    const ClickBatch batch = read_whole(*source, 0);
    EXPECT_EQ(batch.lookups[0].indices, batch.lookups[1].indices);
    for (std::size_t i = 0; i < std::size_t(kShuffledSamples); i += 997) {
      EXPECT_EQ(batch.targets[i], batch.lookups[0].indices[i] % 2);
      EXPECT_EQ(batch.dense[32 * i + 31], std::log(float(batch.lookups[0].indices[i]) + 1));
    }
    return batch.lookups[0].indices;
  }

  TestFolder folder_;
  PackedHeader header_;
  int made_ = 0;
};

TEST_F(Shuffle, IsNumpysPermutationWhereItFits) {
  auto expected = NumpyRandom(5).permutation(kTraining);
  for (std::int64_t i = kTraining; i < kShuffledSamples; ++i) expected.push_back(i);
  EXPECT_EQ(order(8 * kTraining, 3, 5), expected);
}

TEST_F(Shuffle, IsAPermutationInLittleMemoryWhateverTheThreads) {
  const auto one = order(1 << 20, 1, 5), several = order(1 << 20, 4, 5);
  EXPECT_EQ(one, several);
  EXPECT_NE(one, order(1 << 20, 1, 6));
  std::vector<bool> seen(kShuffledSamples);
  std::int64_t moved = 0;
  for (std::int64_t i = 0; i < kShuffledSamples; ++i) {
    seen.at(std::size_t(one[std::size_t(i)])) = true;
    moved += std::abs(one[std::size_t(i)] - i);
    if (i >= kTraining) {
      EXPECT_EQ(one[std::size_t(i)], i);
    }
  }
  EXPECT_EQ(std::count(seen.begin(), seen.end(), true), kShuffledSamples);
  EXPECT_NEAR(double(moved) / kTraining, kTraining / 3.0, kTraining / 100.0);  // as of a uniform permutation
}

}  // namespace
}  // namespace tutti
