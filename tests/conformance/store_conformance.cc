// Every promise of store.h, for every store. Threads stand for ranks, each with a handle of its own.
#include "tests/conformance/store_conformance.h"

#include <gmock/gmock.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "tutti/store/prefix_store.h"

namespace tutti {

StoreMaker prefixed(StoreMaker maker) {
  class PrefixWorld : public StoreWorld {
   public:
    explicit PrefixWorld(std::unique_ptr<StoreWorld> world) : world_(std::move(world)) {}
    std::unique_ptr<Store> open() override { return std::make_unique<PrefixStore>("group/7", world_->open()); }

   private:
    std::unique_ptr<StoreWorld> world_;
  };
  return {"Prefix" + maker.name, [make = maker.make] { return std::make_unique<PrefixWorld>(make()); }};
}

namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

Deadline soon() { return Deadline::after_seconds(90); }
Deadline at_once() { return Deadline::after_seconds(0.02); }

template <class T>
std::string text_of(const T& result) {
  return result.ok() ? "ok" : to_string(result.error());
}

// Runs `body(rank, store)` for ranks 0..size-1, each on a thread with its own handle.
template <class Body>
void run_ranks(StoreWorld& world, int size, Body body) {
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < size; ++rank)
    ranks.emplace_back([&, rank] {
      const auto store = world.open();
      body(rank, *store);
    });
  for (auto& rank : ranks) rank.join();
}

TEST_P(StoreConformance, SetThenGet) {
  store_->set("k", "v").or_throw();
  EXPECT_EQ(store_->get("k", soon()).or_throw(), "v");
  store_->set("k", "w").or_throw();
  EXPECT_EQ(world_->open()->get("k", soon()).or_throw(), "w");
}

TEST_P(StoreConformance, KeysAndValuesAreBytes) {
  const std::string key("a\0b/\xff \n", 7), value("\0\xff\0", 3);
  store_->set(key, value).or_throw();
  store_->set("", "").or_throw();
  EXPECT_EQ(store_->get(key, soon()).or_throw(), value);
  EXPECT_EQ(store_->get("", soon()).or_throw(), "");
}

TEST_P(StoreConformance, GetWaitsForTheKey) {
  std::thread setter([&] { world_->open()->set("late", "v").or_throw(); });
  EXPECT_EQ(store_->get("late", soon()).or_throw(), "v");
  setter.join();
}

TEST_P(StoreConformance, GetTimesOutWithTheKeyAndTheLimit) {
  const auto value = store_->get("never", at_once());
  ASSERT_FALSE(value.ok());
  EXPECT_EQ(value.error().code, Code::kTimeout);
  EXPECT_THAT(to_string(value.error()), HasSubstr("never\": the key was not set after"));
  EXPECT_GE(value.error().waited, value.error().limit);
  store_->set("never", "but now").or_throw();  // the failed wait left nothing behind
  EXPECT_EQ(store_->get("never", soon()).or_throw(), "but now");
}

TEST_P(StoreConformance, AddCountsFromZeroAndSeesSetNumbers) {
  EXPECT_EQ(store_->add("n", 5).or_throw(), 5);
  EXPECT_EQ(store_->add("n", -7).or_throw(), -2);
  EXPECT_EQ(store_->get("n", soon()).or_throw(), "-2");
  store_->set("n", "40").or_throw();
  EXPECT_EQ(store_->add("n", 2).or_throw(), 42);
}

TEST_P(StoreConformance, AddToTextOrBeyondTheRangeIsAnError) {
  store_->set("t", "text").or_throw();
  EXPECT_THAT(text_of(store_->add("t", 1)), HasSubstr("not a decimal number"));
  store_->set("n", "9223372036854775807").or_throw();
  EXPECT_THAT(text_of(store_->add("n", 1)), HasSubstr("does not fit"));
  EXPECT_EQ(store_->get("n", soon()).or_throw(), "9223372036854775807");
}

TEST_P(StoreConformance, ConcurrentAddsAllCount) {
  run_ranks(*world_, 4, [](int, Store& store) {
    for (int i = 0; i < 50; ++i) store.add("n", 1).or_throw();
  });
  EXPECT_EQ(store_->add("n", 0).or_throw(), 200);
}

TEST_P(StoreConformance, CompareSetReturnsWhetherItStored) {
  auto result = store_->compare_set("c", "expected", "new").or_throw();
  EXPECT_FALSE(result.stored);
  EXPECT_FALSE(result.value.has_value());
  result = store_->compare_set("c", std::nullopt, "first").or_throw();
  EXPECT_TRUE(result.stored);
  EXPECT_EQ(result.value, "first");
  result = store_->compare_set("c", std::nullopt, "second").or_throw();
  EXPECT_FALSE(result.stored);
  EXPECT_EQ(result.value, "first");
  result = store_->compare_set("c", "wrong", "second").or_throw();
  EXPECT_FALSE(result.stored);
  result = store_->compare_set("c", "first", "second").or_throw();
  EXPECT_TRUE(result.stored);
  EXPECT_EQ(store_->get("c", soon()).or_throw(), "second");
}

TEST_P(StoreConformance, CompareSetElectsOne) {
  std::atomic<int> winners = 0;
  run_ranks(*world_, 4, [&](int rank, Store& store) {
    if (store.compare_set("leader", std::nullopt, std::to_string(rank)).or_throw().stored) ++winners;
  });
  EXPECT_EQ(winners, 1);
}

TEST_P(StoreConformance, WaitForSeveralKeysListsThoseThatAreMissing) {
  store_->set("b", "").or_throw();
  const auto status = store_->wait({"a", "b", "c"}, at_once());
  EXPECT_THAT(text_of(status), HasSubstr("wait for 3 keys: 2 of 3 keys were not set: "));
  EXPECT_THAT(text_of(status), HasSubstr("a\", "));
  std::thread setter([&] {
    const auto other = world_->open();
    other->set("c", "").or_throw();
    other->set("a", "").or_throw();
  });
  store_->wait({"a", "b", "c"}, soon()).or_throw();
  setter.join();
  EXPECT_TRUE(store_->check({"a", "b", "c"}).or_throw());
}

TEST_P(StoreConformance, CheckDoesNotWait) {
  EXPECT_FALSE(store_->check({"x"}).or_throw());
  store_->set("x", "").or_throw();
  EXPECT_TRUE(store_->check({"x"}).or_throw());
  EXPECT_FALSE(store_->check({"x", "y"}).or_throw());
  EXPECT_TRUE(store_->check({}).or_throw());
}

TEST_P(StoreConformance, RemoveReturnsWhetherTheKeyExisted) {
  store_->set("x", "1").or_throw();
  store_->push("q", "1").or_throw();
  EXPECT_EQ(store_->num_keys().or_throw(), 2);
  EXPECT_TRUE(store_->remove("x").or_throw());
  EXPECT_FALSE(store_->remove("x").or_throw());
  EXPECT_TRUE(store_->remove("q").or_throw());
  EXPECT_EQ(store_->num_keys().or_throw(), 0);
  EXPECT_FALSE(store_->check({"x"}).or_throw());
}

TEST_P(StoreConformance, AppendMakesAndExtends) {
  store_->append("log", "a").or_throw();
  store_->append("log", "b").or_throw();
  EXPECT_EQ(store_->get("log", soon()).or_throw(), "ab");
}

TEST_P(StoreConformance, MultiSetAndMultiGetKeepTheOrder) {
  store_->multi_set({"a", "b", "c"}, {"1", "2", "3"}).or_throw();
  EXPECT_THAT(store_->multi_get({"c", "a", "b", "a"}, soon()).or_throw(), ElementsAre("3", "1", "2", "1"));
  EXPECT_THAT(store_->multi_get({}, soon()).or_throw(), ElementsAre());
  EXPECT_THAT(text_of(store_->multi_set({"a", "b"}, {"1"})), HasSubstr("2 keys and 1 values"));
}

TEST_P(StoreConformance, MultiGetWaitsForAll) {
  std::thread setter([&] { world_->open()->multi_set({"m1", "m2"}, {"1", "2"}).or_throw(); });
  EXPECT_THAT(store_->multi_get({"m1", "m2"}, soon()).or_throw(), ElementsAre("1", "2"));
  setter.join();
}

TEST_P(StoreConformance, NoReaderSeesAPartOfAMultiSet) {
  const std::vector<std::string> keys = {"p1", "p2", "p3", "p4", "p5"};
  const auto all = [&](int number) { return std::vector<std::string>(keys.size(), std::to_string(number)); };
  constexpr int kLast = 50;
  store_->multi_set(keys, all(0)).or_throw();
  std::thread setter([&, store = world_->open()] {
    for (int number = 1; number <= kLast; ++number) store->multi_set(keys, all(number)).or_throw();
  });
  for (std::string seen; seen != std::to_string(kLast);) {
    const std::vector<std::string> values = store_->multi_get(keys, soon()).or_throw();
    EXPECT_THAT(values, ::testing::Each(values.front()));
    seen = values.back();
    if (HasFailure()) break;
  }
  setter.join();
}

TEST_P(StoreConformance, QueueIsFirstInFirstOut) {
  store_->push("q", "1").or_throw();
  store_->push("q", "2").or_throw();
  EXPECT_EQ(store_->queue_length("q").or_throw(), 2);
  EXPECT_EQ(store_->pop("q", soon()).or_throw(), "1");
  EXPECT_EQ(store_->pop("q", soon()).or_throw(), "2");
  EXPECT_EQ(store_->queue_length("q").or_throw(), 0);
  EXPECT_THAT(text_of(store_->pop("q", at_once())), HasSubstr("nothing was pushed"));
}

TEST_P(StoreConformance, PopWaitsAndEachValueGoesToOne) {
  constexpr int kRanks = 3, kEach = 10;
  std::mutex mutex;
  std::vector<std::string> got;
  std::thread pusher([&] {
    const auto other = world_->open();
    for (int i = 0; i < kRanks * kEach; ++i) other->push("q", std::to_string(i)).or_throw();
  });
  run_ranks(*world_, kRanks, [&](int, Store& store) {
    for (int i = 0; i < kEach; ++i) {
      auto value = store.pop("q", soon()).or_throw();
      const std::lock_guard lock(mutex);
      got.push_back(std::move(value));
    }
  });
  pusher.join();
  std::vector<std::string> expected;
  for (int i = 0; i < kRanks * kEach; ++i) expected.push_back(std::to_string(i));
  EXPECT_THAT(got, testing::UnorderedElementsAreArray(expected));
}

TEST_P(StoreConformance, TimedOutPopTakesNothing) {
  EXPECT_FALSE(store_->pop("q", at_once()).ok());
  store_->push("q", "kept").or_throw();
  EXPECT_EQ(store_->queue_length("q").or_throw(), 1);
}

TEST_P(StoreConformance, BarrierHoldsAllUntilTheLastAndItsKeyCanBeUsedAgain) {
  for (const int size : {1, 2, 3, 4, 7}) {
    std::atomic<int> entered = 0;
    run_ranks(*world_, size, [&](int rank, Store& store) {
      for (int round = 1; round <= 3; ++round) {
        ++entered;
        const Status status = store.barrier("b", rank, size, soon());
        EXPECT_TRUE(status.ok()) << text_of(status);
        EXPECT_GE(entered.load(), size * round);
      }
    });
  }
}

TEST_P(StoreConformance, GatherAllGivesTheValuesByRank) {
  for (const int size : {1, 2, 3, 4, 7}) {
    run_ranks(*world_, size, [&](int rank, Store& store) {
      for (int round = 0; round < 3; ++round) {
        const auto values = store.gather_all("g", rank, size, std::to_string(rank * 10 + round), soon());
        ASSERT_TRUE(values.ok()) << text_of(values);
        ASSERT_EQ(values->size(), std::size_t(size));
        for (int i = 0; i < size; ++i) EXPECT_EQ((*values)[std::size_t(i)], std::to_string(i * 10 + round));
      }
    });
  }
  EXPECT_EQ(store_->num_keys().or_throw(), 0);
}

TEST_P(StoreConformance, BarrierNamesTheRanksThatAreMissing) {
  const auto status = store_->barrier("b", 2, 9, at_once());
  EXPECT_THAT(text_of(status), HasSubstr("b\", rank 2: ranks 0, 1, 3-8 of 9 did not arrive after"));
  EXPECT_EQ(status.error().code, Code::kTimeout);
  EXPECT_THAT(text_of(store_->gather_all("b", 0, 2, "v", at_once())), HasSubstr("rank 1 of 2 did not arrive"))
      << "rank 2 did not leave";
}

TEST_P(StoreConformance, RankThatTimedOutMayEnterAgain) {
  EXPECT_FALSE(store_->barrier("b", 0, 2, at_once()).ok());
  run_ranks(*world_, 2, [](int rank, Store& store) { EXPECT_EQ(text_of(store.barrier("b", rank, 2, soon())), "ok"); });
}

// Two make calls that exclude one another: whoever comes second is told, and then does as the first.

TEST_P(StoreConformance, SecondEntryOfARankIsAMismatchThatNamesIt) {
  std::atomic<int> mismatches = 0;
  run_ranks(*world_, 2, [&](int, Store& store) {
    const Status entered = store.barrier("b", 1, 2, soon());
    if (entered.ok()) return;
    ++mismatches;
    EXPECT_THAT(text_of(entered), HasSubstr("Mismatch: "));
    EXPECT_THAT(text_of(entered), HasSubstr("rank 1: rank 1 has entered already: two processes have the same rank"));
    EXPECT_EQ(text_of(store.barrier("b", 0, 2, soon())), "ok");
  });
  EXPECT_EQ(mismatches, 1);
}

TEST_P(StoreConformance, MeetingsOfOtherKindAreMismatches) {
  std::atomic<int> mismatches = 0;
  run_ranks(*world_, 2, [&](int rank, Store& store) {
    const auto gather = [&] { return store.gather_all("b", rank, 2, "", soon()).status(); };
    const auto barrier = [&] { return store.barrier("b", rank, 2, soon()); };
    const Status first = rank == 0 ? gather() : barrier();
    if (first.ok()) return;
    ++mismatches;
    EXPECT_THAT(text_of(first), HasSubstr(rank == 0 ? "rank 1 called barrier with this key"
                                                    : "rank 0 called gather_all with this key"));
    EXPECT_EQ(text_of(rank == 0 ? barrier() : gather()), "ok");
  });
  EXPECT_EQ(mismatches, 1);
}

TEST_P(StoreConformance, MeetingsOfOtherSizeAreMismatches) {
  std::atomic<int> mismatches = 0;
  run_ranks(*world_, 2, [&](int rank, Store& store) {  // rank 0 counts 2 ranks, rank 1 counts 3
    const Status first = store.barrier("b", rank, 2 + rank, soon());
    if (first.ok()) return;
    ++mismatches;
    EXPECT_THAT(text_of(first), HasSubstr(rank == 0 ? "rank 1 counts 3 ranks, rank 0 counts 2"
                                                    : "rank 0 counts 2 ranks, rank 1 counts 3"));
    std::thread third([&, rank] {
      if (rank != 0) return;
      EXPECT_EQ(text_of(world_->open()->barrier("b", 2, 3, soon())), "ok");
    });
    EXPECT_EQ(text_of(store.barrier("b", rank, 3 - rank, soon())), "ok");
    third.join();
  });
  EXPECT_EQ(mismatches, 1);
}

TEST_P(StoreConformance, RanksOutOfRangeAreRefused) {
  EXPECT_THAT(text_of(store_->barrier("b", 2, 2, soon())), HasSubstr("rank 2 is not from 0 to 1"));
  EXPECT_THAT(text_of(store_->barrier("b", -1, 2, soon())), HasSubstr("rank -1 is not from 0 to 1"));
  EXPECT_THAT(text_of(store_->barrier("b", 0, 0, soon())), HasSubstr("the number of ranks is 0"));
}

TEST_P(StoreConformance, LimitsAreErrorsAndNotDisasters) {
  EXPECT_EQ(store_->set(std::string(4000, 'k'), "v").ok(), true);
  EXPECT_THAT(text_of(store_->set(std::string(4097, 'k'), "v")), HasSubstr("Limit: "));
  const std::string largest(std::size_t(8) << 20, 'v');
  store_->set("large", largest).or_throw();
  EXPECT_THAT(text_of(store_->set("large", largest + "v")), HasSubstr("at most 8 MiB are allowed"));
  EXPECT_THAT(text_of(store_->append("large", "v")), HasSubstr("at most 8 MiB are allowed"));
  EXPECT_EQ(store_->get("large", soon()).or_throw().size(), largest.size());
}

TEST_P(StoreConformance, CloneSeesTheSameTable) {
  const auto twin = store_->clone(soon()).or_throw();
  std::thread waiter([&] { EXPECT_EQ(twin->get("k", soon()).or_throw(), "v"); });
  store_->set("k", "v").or_throw();
  waiter.join();
}

}  // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreConformance);

}  // namespace tutti
