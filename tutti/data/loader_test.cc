#include "tutti/data/loader.h"

#include <gmock/gmock.h>
#include <sys/resource.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <latch>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/sanitizers.h"
#include "tutti/data/batch_sampler.h"
#include "tutti/data/epoch_batches.h"

namespace tutti {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using Samples = std::vector<std::int64_t>;

BatchSampler in_order(std::size_t size, std::size_t batch = 2) {
  return BatchSampler(0, 1, {.dataset_size = size, .batch_size = batch, .order = SampleOrder::kSequential});
}

// The batch of the first sample takes longest, so that threads overtake each other.
Samples slowly(const Samples& samples) {
  std::this_thread::sleep_for((samples.front() / 2) % 3 == 0 ? 3ms : 0ms);
  return samples;
}

template <class L>
std::vector<Samples> rest_of(L& loader) {
  std::vector<Samples> batches;
  while (auto batch = loader.next()) batches.push_back(*batch);
  return batches;
}

TEST(Loader, TheOrderDependsOnlyOnTheSampler) {
  for (const LoaderOptions& options :
       {LoaderOptions{.threads = 0}, {.threads = 1, .ahead = 1}, {.threads = 4, .ahead = 9}}) {
    Loader loader(in_order(60), slowly, options);
    const auto batches = rest_of(loader);
    ASSERT_EQ(batches.size(), 30u);
    for (int i = 0; i < 30; ++i) EXPECT_THAT(batches[std::size_t(i)], ElementsAre(2 * i, 2 * i + 1));
    EXPECT_FALSE(loader.next()) << "after the end, once more";
  }
}

TEST(Loader, ItsStateFollowsReturnedBatchesNotPreparedOnes) {
  Loader loader(in_order(40), slowly, {.threads = 3, .ahead = 8});
  EXPECT_EQ(loader.state(), 0u);
  for (int i = 0; i < 5; ++i) loader.next();
  EXPECT_EQ(loader.state(), 10u);
  Loader resumed(in_order(40), slowly, {.threads = 2, .ahead = 3});
  resumed.restore(loader.state());
  EXPECT_EQ(rest_of(resumed), rest_of(loader));
  loader.restore(34);
  EXPECT_THAT(rest_of(loader), ElementsAre(Samples{34, 35}, Samples{36, 37}, Samples{38, 39}));
}

TEST(Loader, GoesThroughTheEpochsOfADistributedSampler) {
  const DistributedSampler sampler(23, 1, 2, {.shuffle = true, .seed = 5});
  Loader loader(EpochBatches(sampler, 5), slowly, {.threads = 2, .ahead = 4});
  for (const std::int64_t epoch : {0, 3, 1}) {
    loader.set_epoch(epoch);
    DistributedSampler expected = sampler;
    expected.set_epoch(epoch);
    for (int i = 0; i < 2; ++i) EXPECT_EQ(loader.next(), expected.take(5)) << "epoch " << epoch;
    EXPECT_FALSE(loader.next()) << "2 of 12 samples fill no batch";
  }
  Loader whole(EpochBatches(sampler, 5, false), slowly);
  EXPECT_EQ(rest_of(whole).back().size(), 2u);
}

TEST(Loader, ThreadsPrepareBatchesWhileTheProgramWorks) {
  std::mutex mutex;
  std::set<std::thread::id> makers;
  std::latch all_made(5);
  Loader loader(in_order(10),
                [&](const Samples& samples) {
                  const std::lock_guard lock(mutex);
                  makers.insert(std::this_thread::get_id());
                  all_made.count_down();
                  return samples;
                },
                {.threads = 2, .ahead = 4});
  loader.next();  // the other four are prepared without a call of next()
  all_made.wait();
  EXPECT_EQ(makers.count(std::this_thread::get_id()), 0u);
}

TEST(Loader, NeverPreparesMoreThanItsLimit) {
  std::atomic<int> made = 0;
  Loader loader(in_order(100),
                [&](const Samples& samples) {
                  ++made;
                  return samples;
                },
                {.threads = 3, .ahead = 4});
  for (int i = 1; i <= 10; ++i) {
    loader.next();
    EXPECT_LE(made, i + 4);
  }
}

TEST(Loader, AnExceptionOfMakeIsThrownInItsPlace) {
  for (const int threads : {0, 2}) {
    Loader loader(in_order(8),
                  [](const Samples& samples) -> Samples {
                    if (samples.front() == 2) throw std::runtime_error("picture 2 is torn");
                    return samples;
                  },
                  {.threads = threads, .ahead = 3});
    EXPECT_THAT(*loader.next(), ElementsAre(0, 1));
    EXPECT_THAT([&] { loader.next(); }, testing::ThrowsMessage<std::runtime_error>("picture 2 is torn"));
    EXPECT_EQ(loader.state(), 4u);
    EXPECT_THAT(*loader.next(), ElementsAre(4, 5));
  }
}

TEST(Loader, ATimeoutNamesTheBatch) {
  std::latch go(1);
  Loader loader(in_order(20, 5),
                [&](const Samples& samples) {
                  if (samples.front() == 5) go.wait();
                  return samples;
                },
                {.threads = 1, .ahead = 2, .patience = 200ms});
  loader.next();
  try {
    loader.next();
    FAIL() << "came";
  } catch (const Exception& e) {
    EXPECT_EQ(e.error().code, Code::kTimeout);
    EXPECT_THAT(e.what(), HasSubstr("batch 1 of a loader (samples 5, 6, 7 and 2 more) began"));
    EXPECT_THAT(e.what(), HasSubstr("patience"));
  }
  EXPECT_EQ(loader.state(), 5u);
  go.count_down();
  EXPECT_THAT(rest_of(loader).front(), ElementsAre(5, 6, 7, 8, 9)) << "still the next one";
}

TEST(Loader, SupportsMoveOnlyBatches) {
  Loader loader(in_order(4), [](const Samples& samples) { return std::make_unique<Samples>(samples); });
  EXPECT_THAT(**loader.next(), ElementsAre(0, 1));
}

// Draws 0, 1, 2, ... and fails once, at 2.
struct FailingSampler {
  std::int64_t next = 0;
  bool failed = false;
  Samples take() {
    if (next == 2 && !std::exchange(failed, true)) throw std::runtime_error("the index cannot be read");
    return next == 4 ? Samples{} : Samples{next++};
  }
  std::int64_t state() const { return next; }
  void restore(std::int64_t state) { next = state; }
};

TEST(Loader, ASamplerThatThrowsLosesNoBatch) {
  Loader loader(FailingSampler(), slowly, {.threads = 1, .ahead = 2});
  EXPECT_THROW(loader.next(), std::runtime_error);
  EXPECT_EQ(loader.state(), 0);
  EXPECT_EQ(loader.next(), Samples{0});
  EXPECT_EQ(loader.state(), 1);
  EXPECT_THAT(rest_of(loader), ElementsAre(Samples{1}, Samples{2}, Samples{3}));
}

TEST(Loader, AThreadThatCannotBeStartedIsAnError) {
#if TUTTI_ASAN || TUTTI_TSAN
  GTEST_SKIP() << "a sanitizer needs the address space that this takes away";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto with_little_memory = [] {
    const rlimit little{.rlim_cur = rlim_t(256) << 20, .rlim_max = rlim_t(256) << 20};  // stacks: 8 MiB each
    setrlimit(RLIMIT_AS, &little);
    try {
      Loader loader(in_order(40), slowly, {.threads = 1000});
    } catch (const Exception& failure) {
      std::cerr << failure.what();
      std::exit(3);
    }
    std::exit(0);
  };
  EXPECT_EXIT(with_little_memory(), testing::ExitedWithCode(3), "Loader: cannot start thread [0-9]+ of 1000");
}

TEST(Loader, RejectsInvalidOptions) {
  EXPECT_THAT([] { Loader(in_order(4), slowly, {.threads = -1}); },
              testing::ThrowsMessage<Exception>(HasSubstr("-1 threads; expected 0 or more")));
  EXPECT_THAT([] { Loader(in_order(4), slowly, {.threads = 2, .ahead = 0}); },
              testing::ThrowsMessage<Exception>(HasSubstr("0 batches ahead; expected 1 or more")));
  EXPECT_THAT([] { EpochBatches(DistributedSampler(23, 1, 2), 0); },
              testing::ThrowsMessage<Exception>(HasSubstr("a batch of 0 samples; expected 1 or more")));
}

}  // namespace
}  // namespace tutti
