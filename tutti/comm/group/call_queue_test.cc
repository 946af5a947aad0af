// The queue alone: the operations, the owner and the clock are the test's.
#include "tutti/comm/group/call_queue.h"

#include <gmock/gmock.h>

#include <deque>
#include <future>
#include <stdexcept>
#include <thread>

#include "tests/harness/eventually.h"
#include "tests/harness/limits.h"
#include "tutti/comm/group/paths.h"

namespace tutti::comm {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

// What becomes of one call; the test changes it between turns.
struct Call {
  std::atomic<comm::Progress> next{comm::Progress::kBlocked};
  std::function<Result<comm::Progress>()> act;  // instead, if there is one
  bool lets_next_start = false;
  std::atomic<int> steps{0};
  std::shared_ptr<Submission> submission;

  bool is_done() const { return submission->done.load(); }
  std::string error() const {
    return !is_done() ? "pending" : submission->result.ok() ? "" : submission->result.error().detail;
  }
};

class FakeOperation final : public comm::Operation {
 public:
  explicit FakeOperation(Call& call) : call_(call) {}
  Result<comm::Progress> step() override {
    ++call_.steps;
    return call_.act ? call_.act() : call_.next.load();
  }
  bool lets_next_start() const override { return call_.lets_next_start; }
  void blockers(comm::Blockers& blockers) const override { blockers.ranks.push_back(1); }

 private:
  Call& call_;
};

class CallQueueTest : public testing::Test, public CallQueue::Owner {
 protected:
  // Queues a call that begins now, by the clock of the test.
  Call& submit(Kind kind, Duration limit = seconds(10)) {
    Call& call = calls_.emplace_back();
    call.submission = std::make_shared<Submission>();
    Submission& s = *call.submission;
    s.request = {.kind = kind, .count = 1 << 20};
    s.owned = std::make_unique<FakeOperation>(call);
    s.operation = s.owned.get();
    s.deadline = Deadline::from(time_, limit);
    s.warn_at = time_ + kHangWarning;
    queue_.enqueue({&call.submission, 1});
    return call;
  }
  Call& collective(Duration limit = seconds(10)) { return submit(Kind::kAllReduce, limit); }
  // The same, which has yet to be started.
  Call& collective_behind(Duration limit) {
    Call& call = collective(limit);
    call.submission->operation = nullptr;
    return call;
  }
  bool turn(Duration later = milliseconds(1)) {
    time_ += later;
    return queue_.try_drive(time_);
  }
  bool lock_is_free() {
    if (!queue_.driver().try_lock()) return false;
    queue_.driver().unlock();
    return true;
  }

  void call_failed(const Request&, std::uint64_t sequence, Trouble trouble) override {
    reports_.push_back("#" + std::to_string(sequence) + " " + trouble.error.detail);
  }
  void call_overdue(const Submission& call, const Submission& blocked) override {
    reports_.push_back("#" + std::to_string(call.sequence) + " overdue behind #" + std::to_string(blocked.sequence));
  }
  std::optional<Trouble> check(Submission& call, Clock::time_point time) override {
    checked_.push_back(call.sequence);
    if (check_throws_) throw std::runtime_error("check");
    if (time >= call.warn_at) call.warn_at = Clock::time_point::max();
    return std::exchange(trouble_, std::nullopt);
  }

  static constexpr Duration kHangWarning = seconds(1);
  Clock::time_point time_ = now();
  std::vector<std::string> reports_;
  std::vector<std::uint64_t> checked_;
  std::optional<Trouble> trouble_;
  bool check_throws_ = false;
  std::deque<Call> calls_;
  CallQueue queue_{*this, {.limit = seconds(10), .hang_warning = kHangWarning, .spin = {.pauses = 0, .yields = {}}}};
};

TEST_F(CallQueueTest, CollectivesAreCarriedOutOneAfterAnotherInTheirOrder) {
  Call &first = collective(), &second = collective();
  EXPECT_FALSE(turn());
  EXPECT_EQ(first.submission->sequence, 1u);
  EXPECT_EQ(second.submission->sequence, 2u);
  EXPECT_EQ(first.steps, 1);
  second.next = comm::Progress::kDone;
  EXPECT_FALSE(turn());
  EXPECT_FALSE(second.is_done()) << "it would meet the peers in the middle of the first";
  EXPECT_EQ(second.steps, 0);
  first.next = comm::Progress::kDone;
  EXPECT_TRUE(turn());
  EXPECT_TRUE(first.is_done() && second.is_done());
  EXPECT_TRUE(queue_.is_idle());
}

TEST_F(CallQueueTest, SendsAndReceivesProceedBesideACollective) {
  Call &blocked = collective(), &receive = submit(Kind::kRecv), &send = submit(Kind::kSend);
  EXPECT_FALSE(turn());
  EXPECT_EQ(receive.submission->sequence, 1u) << "numbered by themselves";
  send.next = comm::Progress::kDone;
  EXPECT_TRUE(turn());
  EXPECT_TRUE(send.is_done());
  EXPECT_FALSE(receive.is_done() || blocked.is_done());
}

TEST_F(CallQueueTest, ACollectiveThatContinuesByItselfLetsTheNextOneStart) {
  Call &on_gpu = collective(), &next = collective(), &last = collective();
  on_gpu.lets_next_start = true;
  next.next = comm::Progress::kDone;
  EXPECT_TRUE(turn());
  EXPECT_TRUE(next.is_done());
  EXPECT_FALSE(on_gpu.is_done());
  EXPECT_EQ(last.steps, 1);
  on_gpu.next = comm::Progress::kDone;
  EXPECT_TRUE(turn());
  EXPECT_TRUE(on_gpu.is_done());
}

TEST_F(CallQueueTest, ACallBehindAnotherHasItsOwnDeadline) {
  Call &first = collective(seconds(10)), &second = collective_behind(seconds(2));
  EXPECT_FALSE(turn(milliseconds(1999)));
  EXPECT_THAT(reports_, IsEmpty());
  EXPECT_TRUE(turn(milliseconds(1)));
  EXPECT_THAT(reports_, ElementsAre("#2 overdue behind #1"));
  queue_.end_with(Error{.detail = "too late"});
  EXPECT_TRUE(turn());
  EXPECT_EQ(first.error(), "too late");
  EXPECT_EQ(second.error(), "too late");
}

TEST_F(CallQueueTest, TheCallThatRunsHasItsDeadlineToo) {
  collective(seconds(2));
  EXPECT_TRUE(turn(seconds(2)));
  EXPECT_THAT(reports_, ElementsAre("#1 overdue behind #1"));
}

// A rank that waits for a late peer sleeps until something is due, however many calls are queued.
TEST_F(CallQueueTest, AfterTheWarningNothingIsDueBeforeTheDeadline) {
  collective(seconds(10));
  collective_behind(seconds(20));
  turn();
  EXPECT_EQ(queue_.next_check(time_), kHangWarning - milliseconds(1));
  turn(seconds(1));  // the owner warns
  EXPECT_EQ(queue_.next_check(time_), seconds(9) - milliseconds(1));
  turn(seconds(3));
  EXPECT_EQ(queue_.next_check(time_), seconds(6) - milliseconds(1));
}

TEST_F(CallQueueTest, AStoppedQueueWaitsForItsOwner) {
  collective(seconds(2));
  turn(seconds(2));
  EXPECT_GT(queue_.next_check(time_), seconds(60)) << "what is overdue has been reported";
  EXPECT_FALSE(turn());
}

TEST_F(CallQueueTest, AnErrorEndsEveryCallAndLaterOnesWithTheErrorOfTheOwner) {
  Call &failing = collective(), &behind = collective(), &receive = submit(Kind::kRecv);
  failing.act = [] { return Error{.detail = "broken"}; };
  EXPECT_TRUE(turn());
  EXPECT_THAT(reports_, ElementsAre("#1 broken"));
  const int steps = receive.steps;
  Call& later = submit(Kind::kSend);
  for (Call* call : {&failing, &behind, &receive, &later}) call->next = comm::Progress::kDone;
  EXPECT_FALSE(turn()) << "no call is stepped while the cause is being found out";
  EXPECT_EQ(receive.steps, steps);
  queue_.end_with(Error{.detail = "the cause"});
  EXPECT_TRUE(turn());
  Call& last = collective();
  EXPECT_TRUE(turn());
  for (const Call* call : {&failing, &behind, &receive, &later, &last}) EXPECT_EQ(call->error(), "the cause");
  EXPECT_TRUE(queue_.is_idle());
  EXPECT_THAT(reports_, ElementsAre("#1 broken")) << "reported once";
}

TEST_F(CallQueueTest, AnOperationThatThrowsIsAnErrorAndTheDriverLockIsFree) {
  collective().act = []() -> Result<comm::Progress> { throw std::runtime_error("no invariant"); };
  EXPECT_TRUE(turn());
  EXPECT_THAT(reports_, ElementsAre("#1 no invariant"));
  EXPECT_TRUE(lock_is_free());
}

TEST_F(CallQueueTest, MemoryThatRunsOutIsAnError) {
  submit(Kind::kRecv).act = []() -> Result<comm::Progress> { throw std::bad_alloc(); };
  EXPECT_TRUE(turn());
  EXPECT_THAT(reports_, ElementsAre("#1 no memory is left for the call"));
}

TEST_F(CallQueueTest, ADriverThatThrowsLeavesTheQueueUsable) {
  Call& call = collective();
  check_throws_ = true;
  EXPECT_THROW(turn(), std::runtime_error);
  EXPECT_TRUE(lock_is_free());
  check_throws_ = false;
  call.next = comm::Progress::kDone;
  EXPECT_TRUE(turn());
  EXPECT_TRUE(call.is_done());
}

TEST_F(CallQueueTest, TheOwnerIsAskedNowAndThenAndAtOnceWhenSomethingHappened) {
  collective();
  turn();
  turn(std::chrono::microseconds(100));
  turn(std::chrono::microseconds(100));
  EXPECT_THAT(checked_, ElementsAre(1));
  queue_.look_again();
  turn(std::chrono::microseconds(100));
  EXPECT_THAT(checked_, ElementsAre(1, 1));
  turn(std::chrono::microseconds(600));
  EXPECT_THAT(checked_, ElementsAre(1, 1, 1));
}

TEST_F(CallQueueTest, APeerThatIsGoneFailsTheCall) {
  collective();
  trouble_ = Trouble{Error{.detail = "has died"}};
  EXPECT_TRUE(turn());
  EXPECT_THAT(reports_, ElementsAre("#1 has died"));
}

TEST_F(CallQueueTest, APeerThatHasDoneItsPartMayGo) {
  Call& call = collective();
  call.act = [&]() -> Result<comm::Progress> {
    return call.steps > 1 ? comm::Progress::kDone : comm::Progress::kBlocked;
  };
  trouble_ = Trouble{Error{.detail = "has left"}};
  EXPECT_TRUE(turn());
  EXPECT_EQ(call.error(), "");
  EXPECT_THAT(reports_, IsEmpty());
}

TEST_F(CallQueueTest, CallbacksRunOnceTheCallHasEndedAndOutsideTheDriverLock) {
  Call& call = collective();
  std::promise<void> ran;
  ASSERT_TRUE(call.submission
                  ->on_done([&] {
                    while (!lock_is_free()) std::this_thread::yield();  // the driver may still be in its turn
                    ran.set_value();
                  })
                  .ok());
  turn();
  call.next = comm::Progress::kDone;
  turn();
  ASSERT_EQ(ran.get_future().wait_for(seconds(10)), std::future_status::ready);
  bool at_once = false;
  ASSERT_TRUE(call.submission->on_done([&] { at_once = true; }).ok());
  EXPECT_TRUE(at_once) << "the call has ended already";
}

TEST_F(CallQueueTest, ACallbackMayWaitForAnotherCallback) {
  for (int i = 0; i < 10; ++i) {
    Call &first = collective(), &second = collective();
    std::promise<void> inner, outer;
    ASSERT_TRUE(first.submission
                    ->on_done([&] {
                      inner.get_future().wait();
                      outer.set_value();
                    })
                    .ok());
    ASSERT_TRUE(second.submission->on_done([&] { inner.set_value(); }).ok());
    first.next = second.next = comm::Progress::kDone;
    turn();
    ASSERT_EQ(outer.get_future().wait_for(seconds(10)), std::future_status::ready) << i;
  }
}

TEST_F(CallQueueTest, ACallbackIsNotLostWhileTheCallEnds) {
  for (int i = 0; i < 1000; ++i) {
    Call& call = collective();
    call.next = comm::Progress::kDone;
    std::promise<void> ran;
    std::thread other([&] { (void)call.submission->on_done([&] { ran.set_value(); }); });
    turn();
    other.join();
    ASSERT_EQ(ran.get_future().wait_for(seconds(10)), std::future_status::ready) << i;
  }
}

TEST_F(CallQueueTest, AWaitWithALimitLeavesTheCallUnderWayAndNeedsNoThread) {
  Call& call = collective();
  {
    const test::NoThreads none;  // those of callbacks end before Python exits
    EXPECT_FALSE(queue_.wait(*call.submission, Deadline::after(milliseconds(20))).has_value());
  }
  EXPECT_FALSE(call.is_done());
  call.next = comm::Progress::kDone;
  const auto ended = queue_.wait(*call.submission, Deadline::after(seconds(10)));
  ASSERT_TRUE(ended.has_value());
  EXPECT_TRUE(ended->ok());
}

TEST_F(CallQueueTest, OnlyOneThreadDrives) {
  Call& call = collective();
  call.next = comm::Progress::kDone;
  if (!queue_.driver().try_lock()) FAIL() << "nobody drives";
  EXPECT_FALSE(turn());
  comm::Blockers blockers;
  queue_.blockers(blockers);
  EXPECT_THAT(blockers.ranks, IsEmpty());
  queue_.driver().unlock();
  EXPECT_TRUE(turn());
}

// Peers compare the numbers of calls.
TEST_F(CallQueueTest, ACallQueuedWhileAnotherBeginsOnItsCallersStackHasTheLaterNumber) {
  Call call;
  call.next = comm::Progress::kDone;
  FakeOperation operation(call);
  if (!queue_.lock_soon()) FAIL() << "nobody drives";
  Call& queued = collective();
  const std::uint64_t sequence = ++queue_.sequence(Kind::kBarrier);
  EXPECT_TRUE(queue_.run_inline(comm::StartedOperation(&operation), {.kind = Kind::kBarrier}, sequence).ok());
  EXPECT_EQ(sequence, 1u);
  turn();
  EXPECT_EQ(queued.submission->sequence, 2u);
}

// The caller sleeps, and whoever drives the queue ends its call.
TEST_F(CallQueueTest, AnInlineCallThatTakesLongIsHandedOver) {
  Call call;
  FakeOperation operation(call);
  Status result = Error{.detail = "not run"};
  std::thread caller([&] {
    while (!queue_.lock_soon()) {
    }
    result = queue_.run_inline(comm::StartedOperation(&operation), {.kind = Kind::kBarrier}, 1);
  });
  EXPECT_TRUE(test::eventually([&] { return !queue_.is_idle(); }));
  EXPECT_FALSE(queue_.try_drive(now()));
  call.next = comm::Progress::kDone;
  EXPECT_TRUE(test::eventually([&] { return queue_.try_drive(now()); }));
  caller.join();
  EXPECT_TRUE(result.ok());
}

TEST_F(CallQueueTest, AnInlineCallThatFailsWaitsForTheCause) {
  Call call;
  call.act = [] { return Error{.detail = "broken"}; };
  FakeOperation operation(call);
  Status result;
  std::thread caller([&] {
    while (!queue_.lock_soon()) {
    }
    result = queue_.run_inline(comm::StartedOperation(&operation), {.kind = Kind::kBarrier}, 1);
  });
  EXPECT_TRUE(test::eventually([&] { return !queue_.is_idle(); }));
  EXPECT_FALSE(queue_.try_drive(now())) << "the cause is not known";
  queue_.end_with(Error{.detail = "the cause"});
  EXPECT_TRUE(test::eventually([&] { return queue_.try_drive(now()); }));
  caller.join();
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().detail, "the cause");
}

class Unwilling final : public comm::Backend {
  Result<std::unique_ptr<comm::Operation>> start(const Request&, std::uint64_t) override {
    throw std::runtime_error("cannot start");
  }
  void abort() override {}
};

TEST_F(CallQueueTest, ACallThatCannotStartIsReported) {
  Process process;
  process.world.resize(2);
  const GroupSpec spec{.name = "pair", .global_ranks = {0, 1}};
  const Peers peers(process, spec);
  Paths paths(process, spec, peers, seconds(1));
  paths.carry_by(std::make_unique<Unwilling>());
  CallQueue queue(*this, {.paths = &paths});
  const auto submission = queue.make_submission({.kind = Kind::kBarrier}, {});
  queue.enqueue({&submission, 1});
  EXPECT_TRUE(queue.try_drive(now()));
  EXPECT_THAT(reports_, ElementsAre("#1 cannot start"));
  queue.end_with(Error{.detail = "the cause"});
  EXPECT_TRUE(queue.try_drive(now()));
  EXPECT_TRUE(submission->done.load());
}

}  // namespace
}  // namespace tutti::comm
