#include "tutti/comm/group/progress_thread.h"

#include <gmock/gmock.h>

#include "tests/harness/limits.h"
#include "tutti/base/sanitizers.h"
#include "tutti/comm/group/call_queue.h"
#include "tutti/comm/group/peers.h"

namespace tutti::comm {
namespace {

using testing::HasSubstr;

// Blocked until it is released; then the progress thread has to be notified.
class Gated final : public comm::Operation {
 public:
  explicit Gated(std::atomic<bool>& released) : released_(released) {}
  Result<comm::Progress> step() override { return released_ ? comm::Progress::kDone : comm::Progress::kBlocked; }
  void blockers(comm::Blockers&) const override {}

 private:
  std::atomic<bool>& released_;
};

class Nobody final : public CallQueue::Owner {
  void call_failed(const Request&, std::uint64_t, Trouble) override {}
  void call_overdue(const Submission&, const Submission&) override {}
  std::optional<Trouble> check(Submission&, Clock::time_point) override { return {}; }
};

TEST(ProgressThread, DrivesQueuesUntilTheyAreForgotten) {
  const auto thread = ProgressThread::create(nullptr, {}).or_throw();
  Nobody owner;
  for (int group = 0; group < 3; ++group) {
    CallQueue queue(
        owner,
        {.limit = std::chrono::minutes(1), .hang_warning = std::chrono::minutes(1), .progress_thread = thread.get()});
    for (int call = 0; call < 3; ++call) {
      std::atomic<bool> released{false};
      const auto submission = queue.make_submission({.kind = Kind::kBarrier}, {});
      submission->owned = std::make_unique<Gated>(released);
      submission->operation = submission->owned.get();
      queue.enqueue({&submission, 1});
      EXPECT_FALSE(submission->done.load());
      released = true;
      thread->notify();
      submission->done.wait(false);
      EXPECT_TRUE(submission->result.ok());
    }
    queue.close();
  }
}

TEST(ProgressThread, WithoutADescriptorOrAThreadIsAnError) {
  EXPECT_TRUE(ProgressThread::create(nullptr, {}).ok());
#if !TUTTI_ASAN  // UBSan needs descriptors to look at the type of an object
  {
    const test::FewDescriptors none(0);
    const auto thread = ProgressThread::create(nullptr, {});
    ASSERT_FALSE(thread.ok());
    EXPECT_THAT(to_string(thread.error()), HasSubstr("cannot make an eventfd: Too many open files"));
  }
#endif
  const test::NoThreads none;
  const auto thread = ProgressThread::create(nullptr, {});
  ASSERT_FALSE(thread.ok());
  EXPECT_THAT(to_string(thread.error()), HasSubstr("could not start a thread"));
}

}  // namespace
}  // namespace tutti::comm
