#include "tutti/comm/group/process.h"

#include <gmock/gmock.h>

#include <atomic>
#include <future>
#include <memory>
#include <utility>

#include "tutti/base/mutex.h"
#include "tutti/store/memory_store.h"
#include "tutti/store/request.h"

namespace tutti::comm {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
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
  static std::string cause_of(Process& process, Error error, std::uint64_t group, Evidence evidence) {
    process.add_root_cause(error, group, evidence);
    return error.cause;
  }
  std::string in_store(const std::string& key) { return table_.get(key, Deadline::after_seconds(1)).or_throw(); }
  MemoryStore table_, launchers_table_;
  Process process_, other_;
};

TEST_F(RootCause, TheFirstErrorIsReported) {
  EXPECT_EQ(cause_of(process_, kOwnError, 7, Evidence::kCause), "") << "there is nothing better";
  EXPECT_EQ(in_store("error/7"), to_string(kOwnError));
  EXPECT_EQ(in_store("error"), to_string(kOwnError));
}

TEST_F(RootCause, LaterErrorsAreExplainedByTheFirst) {
  (void)cause_of(other_, {.code = Code::kMismatch, .detail = "rank 1 called barrier"}, 7, Evidence::kCause);
  for (const Evidence evidence : {Evidence::kCause, Evidence::kLoss, Evidence::kEcho})
    EXPECT_EQ(cause_of(process_, kOwnError, 7, evidence), "Mismatch: rank 1 called barrier");
}

TEST_F(RootCause, ALossInOneGroupIsExplainedByTheErrorOfAnother) {
  (void)cause_of(other_, {.code = Code::kMismatch, .detail = "rank 1 called barrier"}, 7, Evidence::kCause);
  EXPECT_EQ(cause_of(process_, kOwnError, 8, Evidence::kLoss), "Mismatch: rank 1 called barrier");
  EXPECT_EQ(cause_of(process_, kOwnError, 9, Evidence::kCause), "") << "nothing else led to it";
}

TEST_F(RootCause, AnEchoWaitsForTheRankThatKnows) {
  auto cause = std::async(std::launch::async, [&] { return cause_of(process_, kOwnError, 7, Evidence::kEcho); });
  (void)cause_of(other_, {.code = Code::kMismatch, .detail = "rank 1 called barrier"}, 7, Evidence::kCause);
  EXPECT_EQ(cause.get(), "Mismatch: rank 1 called barrier");
}

// As a TcpStore does, carries out one call after another.
class SerialStore final : public Store {
 public:
  SerialStore(std::unique_ptr<Store> table, std::atomic<int>& waits) : table_(std::move(table)), waits_(waits) {}
  Result<std::unique_ptr<Store>> clone(Deadline deadline) override {
    return std::unique_ptr<Store>(new SerialStore(TUTTI_TRY(table_->clone(deadline)), waits_));
  }

 private:
  Result<store::Reply> call(const store::Request& request, Deadline deadline, const Waiting& waiting) override {
    const MutexLock lock(mutex_);
    if (request.op == store::Op::kGet) {
      waits_.fetch_sub(1);
      waits_.notify_all();
    }
    return table_->run(request, &deadline, waiting);
  }

  Mutex mutex_;
  const std::unique_ptr<Store> table_;
  std::atomic<int>& waits_;
};

TEST_F(RootCause, RanksThatWaitForEachOtherInTwoGroupsReportBothErrors) {
  std::atomic<int> waits{2};
  for (Process* process : {&process_, &other_})
    process->store = std::make_unique<SerialStore>(table_.clone(Deadline::after_seconds(1)).or_throw(), waits);
  auto of_7 = std::async(std::launch::async, [&] { return cause_of(process_, kOwnError, 7, Evidence::kEcho); });
  auto of_8 = std::async(std::launch::async, [&] { return cause_of(other_, kOwnError, 8, Evidence::kEcho); });
  for (int left; (left = waits.load()) > 0;) waits.wait(left);
  (void)cause_of(process_, {.code = Code::kPeerLost, .detail = "rank 1 is gone"}, 8, Evidence::kCause);
  (void)cause_of(other_, {.code = Code::kMismatch, .detail = "rank 1 called barrier"}, 7, Evidence::kCause);
  EXPECT_EQ(of_7.get(), "Mismatch: rank 1 called barrier");
  EXPECT_EQ(of_8.get(), "PeerLost: rank 1 is gone");
}

TEST_F(RootCause, LateAndLostRanksComeWithTheFirstError) {
  Error late = kOwnError, lost{.code = Code::kPeerLost, .detail = "is gone"};
  late.ranks = {1, 30}, lost.lost = {2};
  other_.add_root_cause(late, 7, Evidence::kCause);
  other_.add_root_cause(lost, 8, Evidence::kCause);
  for (const Evidence evidence : {Evidence::kCause, Evidence::kEcho}) {
    Error echo{.code = Code::kAborted, .detail = "has ended the group"}, other = echo, mine = late;
    process_.add_root_cause(echo, 7, evidence);
    EXPECT_THAT(echo.ranks, ElementsAre(1, 30));
    EXPECT_THAT(echo.lost, IsEmpty());
    EXPECT_EQ(echo.cause, to_string(kOwnError));
    process_.add_root_cause(other, 8, evidence);
    EXPECT_THAT(other.ranks, IsEmpty());
    EXPECT_THAT(other.lost, ElementsAre(2));
    process_.add_root_cause(mine, 8, evidence);
    EXPECT_THAT(mine.ranks, ElementsAre(1, 30)) << "what this rank saw itself";
    EXPECT_THAT(mine.lost, ElementsAre(2)) << "and what another rank knows to be gone";
  }
  EXPECT_EQ(in_store("error"), to_string(kOwnError)) << "the ranks are numbered within their group";
  (void)cause_of(other_, {.code = Code::kInternal, .detail = "threw:\n#0 at line 12"}, 9, Evidence::kCause);
  Error after_text = kOwnError;
  process_.add_root_cause(after_text, 9, Evidence::kCause);
  EXPECT_THAT(after_text.ranks, IsEmpty()) << "a text of several lines has no ranks";
}

TEST_F(RootCause, TheLauncherKnowsHowALostRankEnded) {
  process_.launcher = launchers_table_.clone(Deadline::after_seconds(1)).or_throw();
  launchers_table_.set("fault", "rank 1 was killed by SIGKILL").or_throw();
  EXPECT_EQ(cause_of(process_, kOwnError, 7, Evidence::kLoss), "rank 1 was killed by SIGKILL");
  EXPECT_EQ(in_store("error/7"), "rank 1 was killed by SIGKILL") << "the other ranks get it too";
}

TEST_F(RootCause, AFaultThatArrivedExplainsEveryError) {
  process_.fault_arrived("rank 1 was killed by SIGKILL");
  process_.fault_arrived("the next one");
  EXPECT_TRUE(process_.has_fault());
  EXPECT_EQ(process_.fault(), "rank 1 was killed by SIGKILL") << "the first counts";
  EXPECT_EQ(cause_of(process_, kOwnError, 7, Evidence::kCause), "rank 1 was killed by SIGKILL");
  process_.store.reset();
  EXPECT_EQ(cause_of(process_, kOwnError, 7, Evidence::kLoss), "rank 1 was killed by SIGKILL");
}

TEST_F(RootCause, AStoreThatIsLostMeansThatRank0HasExited) {
  process_.store = std::make_unique<LostStore>();
  EXPECT_EQ(cause_of(process_, kOwnError, 7, Evidence::kLoss), "rank 0, which served the job's store, has exited");
  EXPECT_EQ(cause_of(process_, kOwnError, 7, Evidence::kCause), "");
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
