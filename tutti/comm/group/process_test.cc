#include "tutti/comm/group/process.h"

#include <gmock/gmock.h>

#include <future>

#include "tutti/store/memory_store.h"
#include "tutti/store/request.h"

namespace tutti::comm {
namespace {

using testing::ElementsAre;
using Evidence = Process::Evidence;

const Error kOwnError{.code = Code::kTimeout, .detail = "no answer"};

// The server of the store has gone.
class LostStore final : public Store {
 public:
  Result<std::unique_ptr<Store>> clone(Deadline) override { return std::unique_ptr<Store>(new LostStore); }

 private:
  Result<store::Reply> call(const store::Request&, Deadline, const Waiting&) override {
    return Error{.code = Code::kPeerLost, .detail = "the server closed the connection"};
  }
};

class RootCause : public testing::Test {
 protected:
  RootCause() {
    for (Process* process : {&process_, &other_}) process->store = table_.clone(Deadline::after_seconds(1)).or_throw();
  }
  std::string in_store(const std::string& key) { return table_.get(key, Deadline::after_seconds(1)).or_throw(); }
  MemoryStore table_, launchers_table_;
  Process process_, other_;
};

TEST_F(RootCause, TheFirstErrorIsReported) {
  EXPECT_EQ(process_.root_cause(kOwnError, 7, Evidence::kCause), "") << "there is nothing better";
  EXPECT_EQ(in_store("error/7"), to_string(kOwnError));
  EXPECT_EQ(in_store("error"), to_string(kOwnError));
}

TEST_F(RootCause, LaterErrorsAreExplainedByTheFirst) {
  (void)other_.root_cause({.code = Code::kMismatch, .detail = "rank 1 called barrier"}, 7, Evidence::kCause);
  for (const Evidence evidence : {Evidence::kCause, Evidence::kLoss, Evidence::kEcho})
    EXPECT_EQ(process_.root_cause(kOwnError, 7, evidence), "Mismatch: rank 1 called barrier");
}

TEST_F(RootCause, ALossInOneGroupIsExplainedByTheErrorOfAnother) {
  (void)other_.root_cause({.code = Code::kMismatch, .detail = "rank 1 called barrier"}, 7, Evidence::kCause);
  EXPECT_EQ(process_.root_cause(kOwnError, 8, Evidence::kLoss), "Mismatch: rank 1 called barrier");
  EXPECT_EQ(process_.root_cause(kOwnError, 9, Evidence::kCause), "") << "nothing else led to it";
}

TEST_F(RootCause, AnEchoWaitsForTheRankThatKnows) {
  auto cause = std::async(std::launch::async, [&] { return process_.root_cause(kOwnError, 7, Evidence::kEcho); });
  (void)other_.root_cause({.code = Code::kMismatch, .detail = "rank 1 called barrier"}, 7, Evidence::kCause);
  EXPECT_EQ(cause.get(), "Mismatch: rank 1 called barrier");
}

TEST_F(RootCause, TheLauncherKnowsHowALostRankEnded) {
  process_.launcher = launchers_table_.clone(Deadline::after_seconds(1)).or_throw();
  launchers_table_.set("fault", "rank 1 was killed by SIGKILL").or_throw();
  EXPECT_EQ(process_.root_cause(kOwnError, 7, Evidence::kLoss), "rank 1 was killed by SIGKILL");
  EXPECT_EQ(in_store("error/7"), "rank 1 was killed by SIGKILL") << "the other ranks get it too";
}

TEST_F(RootCause, AFaultThatArrivedExplainsEveryError) {
  process_.fault_arrived("rank 1 was killed by SIGKILL");
  process_.fault_arrived("the next one");
  EXPECT_TRUE(process_.has_fault());
  EXPECT_EQ(process_.fault(), "rank 1 was killed by SIGKILL") << "the first counts";
  EXPECT_EQ(process_.root_cause(kOwnError, 7, Evidence::kCause), "rank 1 was killed by SIGKILL");
  process_.store.reset();
  EXPECT_EQ(process_.root_cause(kOwnError, 7, Evidence::kLoss), "rank 1 was killed by SIGKILL");
}

TEST_F(RootCause, AStoreThatIsLostMeansThatRank0HasExited) {
  process_.store = std::make_unique<LostStore>();
  EXPECT_EQ(process_.root_cause(kOwnError, 7, Evidence::kLoss), "rank 0, which served the job's store, has exited");
  EXPECT_EQ(process_.root_cause(kOwnError, 7, Evidence::kCause), "");
}

TEST(Process, EachLostRankCountsOnce) {
  Process process;
  for (const int rank : {2, 1, 2}) process.lost(rank);
  EXPECT_THAT(process.lost_ranks(), ElementsAre(2, 1));
}

TEST(Process, LeavesTheJobOnceWithItsLastGroup) {
  int farewells = 0;
  {
    Process process;
    process.farewell = [&] { ++farewells; };
    process.add_member();
    process.add_member();
    process.remove_member(false);
    EXPECT_EQ(farewells, 0);
    process.remove_member(false);
    EXPECT_EQ(farewells, 1);
  }
  EXPECT_EQ(farewells, 1);
}

}  // namespace
}  // namespace tutti::comm
