// Golden values: the loops of Megatron-LM's MegatronPretrainingRandomSampler, run with PyTorch 1.13's randperm.
#include "tutti/data/batch_sampler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <set>

#include "tutti/base/error.h"

namespace tutti {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Indices = std::vector<std::int64_t>;

std::vector<Indices> epoch_of(BatchSampler sampler) {
  std::vector<Indices> batches(sampler.batches_left());
  for (auto& batch : batches) batch = sampler.take();
  return batches;
}

std::string refusal(const std::function<void()>& act) {
  try {
    act();
  } catch (const Exception& e) {
    return e.what();
  }
  return "accepted";
}

TEST(BatchSampler, RandomOrdersAreMegatrons) {
  struct Golden {
    std::size_t size, batch;
    SampleOrder order;
    std::uint64_t consumed;
    std::vector<std::vector<Indices>> by_replica;
  };
  const Golden cases[] = {
      {10, 2, SampleOrder::kRandom, 0, {{{4, 7}, {3, 0}}, {{1, 5}, {9, 8}}}},
      {10, 2, SampleOrder::kRandomSharded, 0, {{{0, 1}, {3, 2}}, {{4, 5}, {7, 6}}}},
      {10, 2, SampleOrder::kRandom, 4, {{{3, 0}}, {{9, 8}}}},
      {10, 2, SampleOrder::kRandomSharded, 4, {{{3, 2}}, {{7, 6}}}},
      {23,
       2,
       SampleOrder::kRandom,
       18,  // the second epoch
       {{{11, 0}, {17, 7}, {10, 20}}, {{18, 3}, {1, 9}, {21, 16}}, {{6, 12}, {15, 5}, {19, 4}}}},
      {23,
       2,
       SampleOrder::kRandomSharded,
       18,
       {{{1, 5}, {2, 0}, {3, 4}}, {{7, 11}, {8, 6}, {9, 10}}, {{13, 17}, {14, 12}, {15, 16}}}},
  };
  for (const auto& golden : cases) {
    for (std::size_t replica = 0; replica < golden.by_replica.size(); ++replica) {
      BatchSampler sampler(int(replica), int(golden.by_replica.size()),
                           {.dataset_size = golden.size,
                            .batch_size = golden.batch,
                            .order = golden.order,
                            .shuffle_multiple = golden.batch});
      sampler.restore(golden.consumed);
      EXPECT_EQ(epoch_of(sampler), golden.by_replica[replica]) << golden.size << " from " << golden.consumed;
    }
  }
}

TEST(BatchSampler, SequentialSplitsEveryGlobalBatch) {
  const BatchSamplerOptions options{.dataset_size = 11, .batch_size = 2, .order = SampleOrder::kSequential};
  EXPECT_THAT(epoch_of(BatchSampler(0, 2, options)), ElementsAre(Indices{0, 1}, Indices{4, 5}));
  EXPECT_THAT(epoch_of(BatchSampler(1, 2, options)), ElementsAre(Indices{2, 3}, Indices{6, 7}));
}

TEST(BatchSampler, SequentialKeepsAnIncompleteLastBatchIfAsked) {
  const BatchSamplerOptions options{
      .dataset_size = 9, .batch_size = 2, .order = SampleOrder::kSequential, .drop_last = false};
  EXPECT_THAT(epoch_of(BatchSampler(0, 2, options)), ElementsAre(Indices{0, 1}, Indices{4, 5}, Indices{8}));
  BatchSampler last(1, 2, options);
  EXPECT_THAT(epoch_of(last), ElementsAre(Indices{2, 3}, Indices{6, 7}, Indices{}));
  for (int i = 0; i < 5; ++i) last.take();
  EXPECT_EQ(last.consumed(), 9u);
  EXPECT_EQ(last.batches_left(), 0u);
  BatchSampler again(1, 2, options);
  again.restore(9);
  EXPECT_THAT(again.take(), ElementsAre());
}

TEST(BatchSampler, EpochsFollowEachOther) {
  BatchSampler sampler(0, 1, {.dataset_size = 10, .batch_size = 4, .seed = 3});
  EXPECT_EQ(sampler.batches_left(), 2u);
  const Indices first = sampler.take();
  sampler.take();
  EXPECT_EQ(sampler.epoch(), 1);
  EXPECT_EQ(sampler.consumed(), 8u);
  BatchSampler second(0, 1, {.dataset_size = 10, .batch_size = 4, .seed = 4});
  EXPECT_EQ(sampler.take(), second.take()) << "seed 3, epoch 1";
  EXPECT_NE(first, sampler.take());
}

TEST(BatchSampler, OneReaderTakesForAll) {
  for (const auto order : {SampleOrder::kSequential, SampleOrder::kRandom, SampleOrder::kRandomSharded}) {
    const BatchSamplerOptions options{.dataset_size = 50, .batch_size = 3, .order = order, .seed = 7};
    BatchSampler reader(0, 4, options);
    std::vector<BatchSampler> replicas;
    for (int r = 0; r < 4; ++r) replicas.emplace_back(r, 4, options);
    for (std::uint64_t left = reader.batches_left(); left > 0; --left) {
      Indices of_all;
      for (auto& replica : replicas) {
        const auto part = replica.take();
        of_all.insert(of_all.end(), part.begin(), part.end());
      }
      EXPECT_EQ(reader.take_for_all(), of_all);
    }
    EXPECT_EQ(reader.state(), replicas[0].state());
  }
}

TEST(BatchSampler, AStepHasTheSameSamplesForEveryNumberOfReplicas) {
  const auto steps = [](int replicas, std::uint64_t consumed) {
    BatchSampler sampler(0, replicas, {.dataset_size = 400, .batch_size = std::size_t(32 / replicas)});
    sampler.restore(consumed);
    std::vector<std::set<std::int64_t>> sets;
    for (int step = 0; step < 15; ++step) {
      const auto samples = sampler.take_for_all();
      sets.emplace_back(samples.begin(), samples.end());
    }
    return sets;
  };
  for (const std::uint64_t consumed : {0, 6 * 32}) {
    EXPECT_EQ(steps(1, consumed), steps(2, consumed));
    EXPECT_EQ(steps(1, consumed), steps(4, consumed));
  }
}

TEST(BatchSampler, ResumesWithAnotherNumberOfReplicas) {
  std::multiset<std::int64_t> seen;
  std::uint64_t consumed = 0;
  for (int r = 0; r < 4; ++r) {
    BatchSampler sampler(r, 4, {.dataset_size = 48, .batch_size = 2});
    for (int i = 0; i < 3; ++i)
      for (const auto index : sampler.take()) seen.insert(index);
    consumed = sampler.state();
  }
  EXPECT_EQ(consumed, 24u);
  for (int r = 0; r < 3; ++r) {
    BatchSampler sampler(r, 3, {.dataset_size = 48, .batch_size = 2});
    sampler.restore(consumed);
    for (const auto& batch : epoch_of(sampler)) seen.insert(batch.begin(), batch.end());
  }
  EXPECT_EQ(seen.size(), 48u);
  EXPECT_EQ(std::set<std::int64_t>(seen.begin(), seen.end()).size(), 48u) << "each once";
}

TEST(BatchSampler, RejectsInvalidOptions) {
  EXPECT_THAT(refusal([] { BatchSampler(2, 2, {.dataset_size = 9}); }), HasSubstr("replica 2 of 2"));
  EXPECT_THAT(refusal([] { BatchSampler(0, 1, {.dataset_size = 9, .batch_size = 0}); }), HasSubstr("batch of 0"));
  EXPECT_THAT(refusal([] { BatchSampler(0, 4, {.dataset_size = 7, .batch_size = 2}); }),
              HasSubstr("7 samples do not fill one batch of 2 samples on each of 4 replicas; expected at least 8"));
  EXPECT_THAT(refusal([] {
                BatchSampler sampler(0, 4, {.dataset_size = 20, .batch_size = 2});
                sampler.restore(20);
              }),
              HasSubstr("20 consumed samples are not a whole number of batches of 2 samples on each of 4"));
}

}  // namespace
}  // namespace tutti
