#include "tutti/comm/group/diagnosis.h"

#include <gmock/gmock.h>

#include <semaphore>

#include "tests/harness/eventually.h"
#include "tests/harness/slow_store.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;

// Rank 0 of several, each on a host of its own.
class DiagnosisOfRank0 : public testing::Test {
 protected:
  explicit DiagnosisOfRank0(int size = 3) {
    for (int r = 0; r < size; ++r) {
      process_.world.push_back({.node = r});
      spec_.global_ranks.push_back(r);
    }
  }
  std::unique_ptr<Diagnosis> diagnosis(Store& store, Duration patience = milliseconds(100)) {
    return std::make_unique<Diagnosis>(
        spec_, peers(), &store, [this] { found_.release(); }, patience);
  }
  const Peers& peers() {
    if (!peers_) peers_.emplace(process_, spec_);
    return *peers_;
  }
  // What rank 1 says in the store.
  static void rank_1_waits_in(Store& store, const std::string& signature, const std::string& text) {
    store.set("call/7/1", signature + "\n" + text).or_throw();
  }

  Process process_;
  GroupSpec spec_{.name = "g", .id = 7, .rank = 0};
  std::optional<Peers> peers_;
  std::counting_semaphore<8> found_{0};
  const Diagnosis::Call call_{
      .sequence = 4, .signature = "4 broadcast 0", .text = "broadcast #4 (root 0)", .awaited = {1}};
};

TEST_F(DiagnosisOfRank0, ACallThatDiffersIsFound) {
  MemoryStore store;
  rank_1_waits_in(store, "4 broadcast 1", "broadcast #4 (root 1)");
  const auto mine = diagnosis(store);
  EXPECT_FALSE(mine->mismatch(4));
  mine->compare(call_);
  found_.acquire();
  const auto error = mine->mismatch(4);
  ASSERT_TRUE(error);
  EXPECT_EQ(error->code, Code::kMismatch);
  EXPECT_EQ(error->peer, 1);
  EXPECT_EQ(error->detail, "called broadcast #4 (root 1) while this rank called broadcast #4 (root 0)");
  EXPECT_FALSE(mine->mismatch(5)) << "of another call";
  EXPECT_EQ(store.get("call/7/0", Deadline::after_seconds(0)).or_throw(), "4 broadcast 0\nbroadcast #4 (root 0)");
}

TEST_F(DiagnosisOfRank0, TheSameCallOrAnEarlierOneIsNoMismatch) {
  for (const char* theirs : {"4 broadcast 0", "3 all_reduce", "no call"}) {
    MemoryStore store;
    rank_1_waits_in(store, theirs, "text");
    diagnosis(store)->compare(call_);  // the destructor waits for the end
    EXPECT_FALSE(found_.try_acquire()) << theirs;
  }
}

// The thread that drives asks again and again, and goes on while the store gives no answer.
TEST_F(DiagnosisOfRank0, ASlowStoreDelaysNoDriver) {
  test::SlowStore store;
  rank_1_waits_in(store.fast(), "4 broadcast 1", "text");
  const auto mine = diagnosis(store, std::chrono::minutes(1));
  for (int look = 0; look < 1000; ++look) {
    mine->compare(call_);
    EXPECT_FALSE(mine->mismatch(4));
  }
  EXPECT_TRUE(test::eventually([&] { return store.calls() == 1; }));
  store.open();
  found_.acquire();
  EXPECT_TRUE(mine->mismatch(4));
}

TEST_F(DiagnosisOfRank0, AStoreThatFailsIsNotAskedAgainDuringTheCall) {
  test::SlowStore store;
  store.set_call_timeout(milliseconds(1));
  auto mine = diagnosis(store);
  mine->compare(call_);
  EXPECT_TRUE(test::eventually([&] { return store.calls() == 2; }));  // set, check
  mine->compare(call_);
  EXPECT_TRUE(test::eventually([&] {
    mine->compare({.sequence = 5, .awaited = {1}});  // starts once the first comparison has ended
    return store.calls() > 2;
  }));
  mine.reset();
  EXPECT_EQ(store.calls(), 4) << "two for each call";
}

TEST_F(DiagnosisOfRank0, ARankThatSaysNothingIsNamed) {
  MemoryStore store;
  const auto mine = diagnosis(store, std::chrono::seconds(1));  // half of it for the rank to say something
  mine->announce_end("barrier #9");
  store.set("waits/7/2", "barrier #9").or_throw();
  Error error{.code = Code::kTimeout, .detail = "still waiting for rank 1"};
  mine->add_silent(error);
  EXPECT_EQ(error.detail, "still waiting for rank 1; rank 1 gives no answer");
}

TEST_F(DiagnosisOfRank0, NoRankIsNamedWhenAllRanksWait) {
  MemoryStore store;
  for (const char* key : {"waits/7/0", "waits/7/1", "waits/7/2"}) store.set(key, "barrier #9").or_throw();
  Error error{.detail = "still waiting"};
  diagnosis(store)->add_silent(error);
  EXPECT_EQ(error.detail, "still waiting");
}

class DiagnosisOfManyRanks : public DiagnosisOfRank0 {
 protected:
  DiagnosisOfManyRanks() : DiagnosisOfRank0(2000) {}
};

TEST_F(DiagnosisOfManyRanks, ADiagnosisEndsByItsDeadline) {
  test::SlowStore store;
  store.set_call_timeout(milliseconds(20));
  const auto begin = now();
  Error error{.detail = "still waiting"};
  diagnosis(store, milliseconds(200))->add_silent(error);
  EXPECT_LT(seconds_since(begin), 10) << "a call for each rank would take 40 s";
}

TEST_F(DiagnosisOfRank0, TheHintOfATimeoutDependsOnWhetherARankIsStopped) {
  MemoryStore store;
  Error error{.code = Code::kTimeout, .hint = "TUTTI_TIMEOUT sets the limit", .limit = 1};
  diagnosis(store)->add_stopped(error);
  EXPECT_EQ(error.hint, "do all ranks make the same calls in the same order? TUTTI_TIMEOUT sets the limit");
}

TEST(AwaitedText, NamesEachRankOnce) {
  comm::Blockers blockers;
  EXPECT_EQ(awaited_text({}, blockers), "its peers");
  blockers.ranks = {3, 1, 2, 3};
  EXPECT_EQ(awaited_text({}, blockers), "ranks 1-3");
  blockers = {};
  blockers.on_device = true;
  EXPECT_EQ(awaited_text({.device = 2}, blockers), "earlier work on the stream of cuda:2");
}

}  // namespace
}  // namespace tutti::comm
