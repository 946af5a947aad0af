// What no rank of a group sees; tests/conformance/group_facts.cc has the rest.
#include "tutti/comm/group/monitored_barrier.h"

#include <gmock/gmock.h>

#include <thread>

#include "tutti/store/memory_store.h"

namespace tutti::comm {
namespace {

using testing::ElementsAre;

// Two ranks on different hosts, both objects of this process.
class MonitoredBarrierOfTwo : public testing::Test {
 protected:
  struct OneOfTwo : Process {
    OneOfTwo(MemoryStore& table, int which) {
      rank = which;
      world = {{.node = 0}, {.node = 1}};
      store = table.clone(Deadline::after_seconds(1)).or_throw();
    }
  };
  struct Member {
    Member(MemoryStore& table, int rank)
        : process(table, rank), spec{.name = "pair", .id = 7, .rank = rank, .global_ranks = {0, 1}} {}
    Status run(Duration limit) {
      return barrier.run(limit, [] { return false; });
    }
    OneOfTwo process;
    const GroupSpec spec;
    const Peers peers{process, spec};
    MonitoredBarrier barrier{process, spec, peers};
  };
  MemoryStore table_;
  Member members_[2]{{table_, 0}, {table_, 1}};
};

TEST_F(MonitoredBarrierOfTwo, TheLastRankRemovesTheKeys) {
  const Status gave_up = members_[0].run(std::chrono::milliseconds(1));
  ASSERT_FALSE(gave_up.ok());
  EXPECT_THAT(gave_up.error().ranks, ElementsAre(1));
  EXPECT_GT(table_.num_keys().or_throw(), 0) << "a late rank learns that it is late";
  const Status late = members_[1].run(std::chrono::minutes(1));
  EXPECT_EQ(late.error().code, Code::kTimeout);
  EXPECT_THAT(late.error().ranks, ElementsAre(1));
  EXPECT_EQ(table_.num_keys().or_throw(), 0) << "after a barrier that failed";

  std::thread other([this] { EXPECT_TRUE(members_[1].run(std::chrono::minutes(1)).ok()); });
  EXPECT_TRUE(members_[0].run(std::chrono::minutes(1)).ok());
  other.join();
  EXPECT_EQ(table_.num_keys().or_throw(), 0) << "after one that passed";
}

TEST_F(MonitoredBarrierOfTwo, EndsWithTheGroupLongBeforeItsLimit) {
  const auto begin = now();
  EXPECT_FALSE(members_[0].barrier.run(std::chrono::hours(1), [] { return true; }).ok());
  EXPECT_LT(now() - begin, std::chrono::minutes(1));
}

}  // namespace
}  // namespace tutti::comm
