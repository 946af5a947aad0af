#include "tutti/parallel/replica_check.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <mutex>

#include "tests/harness/ranks.h"
#include "tutti/tensor/seed.h"

namespace tutti {
namespace {

using testing::AllOf;
using testing::Each;
using testing::HasSubstr;

std::vector<NamedTensor> parameters() {
  return {{"fc1.weight", at::arange(600, at::kFloat).view({20, 30})},
          {"fc1.bias", at::ones({20})},
          {"steps", at::ones({}, at::kLong)}};
}

// What each rank hears after `spoil` had its way.
std::vector<std::string> heard(int size, const std::function<void(int rank, std::vector<NamedTensor>&)>& spoil) {
  std::vector<std::string> texts;
  for (const auto& outcome : test::run_threads(size, [&](Group& world) {
         auto tensors = parameters();
         spoil(world.rank(), tensors);
         require_equal_replicas(world, tensors);
       }))
    texts.push_back(outcome.error);
  return texts;
}

TEST(ReplicaCheck, EqualReplicasPass) {
  for (const int size : {1, 2, 4}) EXPECT_THAT(heard(size, [](int, auto&) {}), Each(""));
}

TEST(ReplicaCheck, NamesTheRankAndTheFirstTensorThatDiffer) {
  const auto texts = heard(4, [](int rank, auto& tensors) {
    if (rank != 2) return;
    tensors[1].tensor[7] += 1e-6;
    tensors[2].tensor += 1;
  });
  EXPECT_THAT(texts, Each(AllOf(HasSubstr("2 of 3 tensors differ, the first is fc1.bias (f32[20]), on rank 2"),
                                HasSubstr("changed after finish()"))));
}

TEST(ReplicaCheck, OfTwoRanksNamesBoth) {
  EXPECT_THAT(heard(2, [](int rank, auto& tensors) { tensors[0].tensor[3][4] += rank; }),
              Each(HasSubstr("on ranks 0, 1 (none is in the majority)")));
}

TEST(ReplicaCheck, ComparesBitsNotValues) {
  EXPECT_THAT(heard(3, [](int rank, auto& tensors) { tensors[1].tensor *= rank == 1 ? -0.0 : 0.0; }),
              Each(HasSubstr("on rank 1")));
}

TEST(ReplicaCheck, AnotherNumberOfTensorsIsReported) {
  EXPECT_THAT(heard(2,
                    [](int rank, auto& tensors) {
                      if (rank == 1) tensors.pop_back();
                    }),
              testing::UnorderedElementsAre(HasSubstr("3 tensors on rank 0, but 2 elsewhere"),
                                            HasSubstr("2 tensors on rank 1, but 3 elsewhere")));
}

TEST(ReplicaCheck, ComparesEveryFewSteps) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    auto tensors = parameters();
    ReplicaCheck check(world, tensors, {.every = 3}), never(world, tensors, {.every = 0});
    tensors[0].tensor[0][0] = world.rank();
    for (int step = 1; step <= 2; ++step) check.step();
    for (int step = 1; step <= 9; ++step) never.step();
    EXPECT_THAT([&] { check.step(); }, testing::ThrowsMessage<Exception>(HasSubstr("fc1.weight")));
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(Seed, TheFirstPlaceIsTorchsManualSeed) {
  seed_all(7);
  const auto ours = at::rand({4});
  at::manual_seed(7);
  EXPECT_TRUE(at::equal(ours, at::rand({4})));
}

TEST(Seed, APlaceHasItsNumbersWheneverItIsReached) {
  const auto dropped = [](const RandomPlace& place) {
    seed_all(11, place);
    return at::dropout(at::ones({1000}), 0.5, true);
  };
  const auto first = dropped({.step = 5, .replica = 1});
  at::rand({100});
  EXPECT_TRUE(at::equal(first, dropped({.step = 5, .replica = 1})));
  EXPECT_FALSE(at::equal(first, dropped({.step = 5, .replica = 0})));
  EXPECT_FALSE(at::equal(first, dropped({.step = 6, .replica = 1})));
  EXPECT_FALSE(at::equal(first, dropped({.step = 5, .replica = 1, .micro_batch = 1})));
}

TEST(Seed, AGeneratorOfItsOwnLeavesTheDefaultOneAlone) {
  seed_all(3);
  const auto expected = at::rand({3});
  seed_all(3);
  auto generator = generator_at(3, {.step = 9});
  const auto other = at::rand({3}, generator);
  EXPECT_TRUE(at::equal(at::rand({3}), expected));
  EXPECT_TRUE(at::equal(other, at::rand({3}, generator_at(3, {.step = 9}))));
}

TEST(Seed, DeterministicComputesWithTheThreadsGiven) {
  const int before = at::get_num_threads();
  use_deterministic(1);
  EXPECT_TRUE(at::globalContext().deterministicAlgorithms());
  EXPECT_EQ(at::get_num_threads(), 1);
  at::globalContext().setDeterministicAlgorithms(false, false);
  at::set_num_threads(before);
  EXPECT_THAT([] { use_deterministic(0); },
              testing::ThrowsMessage<Exception>(HasSubstr("0 threads; expected 1 or more")));
}

}  // namespace
}  // namespace tutti
