// Ranks are threads here; tests of init_as_guest() (runtime/init_test.cc) and of the Python backend use processes.
#include "tutti/rendezvous/foreign.h"

#include <gmock/gmock.h>

#include <condition_variable>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace tutti::rendezvous {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class OtherLibrary {
 public:
  ForeignStore store() {
    return {.set =
                [this](const std::string& key, const std::string& value) {
                  const std::lock_guard lock(mutex_);
                  values_[key] = value;
                  changed_.notify_all();
                },
            .get =
                [this](const std::string& key, Duration limit) {
                  std::unique_lock lock(mutex_);
                  if (!changed_.wait_for(lock, limit, [&] { return values_.count(key) == 1; }))
                    throw std::runtime_error("wait timeout");
                  return values_[key];
                },
            .add =
                [this](const std::string& key) {
                  const std::lock_guard lock(mutex_);
                  return ++sums_[key];
                },
            .has =
                [this](const std::string& key) {
                  const std::lock_guard lock(mutex_);
                  return values_.contains(key) || sums_.contains(key);
                }};
  }
  const std::map<std::string, std::string>& values() const { return values_; }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
  std::map<std::string, std::int64_t> sums_;
};

std::vector<Result<Membership>> join_all(OtherLibrary& library, int size, const std::string& name) {
  std::vector<Result<Membership>> members;
  for (int rank = 0; rank < size; ++rank) members.emplace_back(Membership());
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      members[std::size_t(rank)] =
          join_through(library.store(), {.rank = rank, .world_size = size, .name = name, .library = "torch"}, 30s);
    });
  for (std::thread& thread : threads) thread.join();
  return members;
}

TEST(JoinThrough, AllRanksShareAStoreOfOurs) {
  OtherLibrary library;
  auto members = join_all(library, 3, "default");
  for (int rank = 0; rank < 3; ++rank) {
    const auto& member = members[std::size_t(rank)];
    ASSERT_TRUE(member.ok()) << to_string(member.error());
    EXPECT_EQ(member->rank, rank);
    EXPECT_EQ(member->world_size, 3);
    EXPECT_EQ(member->job, members[0]->job);
    EXPECT_EQ(member->started_by, "torch");
    EXPECT_TRUE(member->store->set("from/" + std::to_string(rank), "").ok());
  }
  EXPECT_TRUE(members[0]->store->wait({"from/0", "from/1", "from/2"}, Deadline::after(10s)).ok());
  EXPECT_EQ(library.values().size(), 1u) << "one note, whatever the number of ranks";
}

TEST(JoinThrough, WorldsOfDifferentNamesDoNotMeet) {
  OtherLibrary library;
  const auto first = join_all(library, 2, "0"), second = join_all(library, 2, "1");
  ASSERT_TRUE(first[1].ok() && second[1].ok());
  EXPECT_NE(first[1]->job, second[1]->job);
}

TEST(JoinThrough, AWorldMayBeMadeAgainInTheSameStore) {
  OtherLibrary library;
  for (int turn = 0; turn < 3; ++turn)
    for (const auto& member : join_all(library, 2, "0")) ASSERT_TRUE(member.ok()) << to_string(member.error());
}

TEST(JoinThrough, AWorldOfOneNeedsNoStore) {
  const auto alone = join_through({}, {.name = "w"}, 1s);
  ASSERT_TRUE(alone.ok());
  EXPECT_EQ(alone->store, nullptr);
}

TEST(JoinThrough, AStoreThatFailsIsNamedWithItsMessage) {
  OtherLibrary library;
  ForeignStore store = library.store();
  store.get = [](const std::string&, Duration) -> std::string { throw std::runtime_error("connection reset"); };
  const auto failed = join_through(store, {.rank = 1, .world_size = 2, .name = "w", .library = "torch"}, 60s);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, Code::kUnreachable);
  EXPECT_EQ(failed.error().rank, 1);
  EXPECT_THAT(failed.error().detail, HasSubstr("the store of torch failed: connection reset"));
}

TEST(JoinThrough, RanksThatDoNotComeAreNamed) {
  OtherLibrary library;
  (void)library.store().add("tutti/w/joined/2");
  const auto alone = join_through(library.store(), {.rank = 1, .world_size = 4, .name = "w", .library = "torch"}, 50ms);
  ASSERT_FALSE(alone.ok());
  EXPECT_EQ(alone.error().code, Code::kTimeout);
  EXPECT_EQ(alone.error().rank, 1);
  EXPECT_THAT(alone.error().detail, HasSubstr("ranks 0, 3 of 4 did not join"));
  EXPECT_THAT(alone.error().hint, HasSubstr("does every rank use the backend tutti"));
}

TEST(JoinThrough, ARankWithTheOtherBackendIsNamed) {
  for (const int wrong : {0, 1}) {
    OtherLibrary library;
    library.store().set("0/" + std::to_string(wrong), "an address of gloo");
    const auto joined = join_through(library.store(),
                                     {.rank = 1 - wrong,
                                      .world_size = 2,
                                      .name = "w",
                                      .library = "torch",
                                      .other_backend = "gloo",
                                      .other_key = "0/"},
                                     60s);
    ASSERT_FALSE(joined.ok());
    EXPECT_EQ(joined.error().code, Code::kMismatch);
    EXPECT_THAT(joined.error().detail, HasSubstr("rank " + std::to_string(wrong) + " uses the backend gloo"));
  }
}

TEST(JoinThrough, ARankThatComesAfterRank0HasGivenUpGetsItsError) {
  OtherLibrary library;
  const auto join = [&](int rank, Duration timeout) {
    return join_through(library.store(), {.rank = rank, .world_size = 3, .name = "w", .library = "torch"}, timeout);
  };
  ASSERT_FALSE(join(0, 100ms).ok());
  const auto begin = now();
  const auto late = join(1, 60s);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::kTimeout) << to_string(late.error());
  EXPECT_THAT(late.error().detail, HasSubstr("of 3 did not join"));
  EXPECT_LT(now() - begin, 30s);
}

TEST(JoinThrough, EntriesOfAnEarlierTimeWithTheOtherBackendAreNoError) {
  OtherLibrary library;
  for (const char* key : {"0/0", "0/1"}) library.store().set(key, "an address of gloo");
  const auto late = join_through(
      library.store(),
      {.rank = 1, .world_size = 2, .name = "w", .library = "torch", .other_backend = "gloo", .other_key = "0/"},
      1500ms);
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::kTimeout) << to_string(late.error());
}

TEST(JoinThrough, AForeignNoteIsAMismatch) {
  OtherLibrary library;
  library.store().set("tutti/w/1", "something else");
  const auto joined = join_through(library.store(), {.rank = 1, .world_size = 2, .name = "w"}, 1s);
  ASSERT_FALSE(joined.ok());
  EXPECT_EQ(joined.error().code, Code::kMismatch);
}

}  // namespace
}  // namespace tutti::rendezvous
