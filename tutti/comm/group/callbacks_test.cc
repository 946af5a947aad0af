#include "tutti/comm/group/callbacks.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <vector>

#include "tests/harness/limits.h"

namespace tutti::comm {
namespace {

constexpr std::chrono::seconds kLimit{30};

// Its threads run until the program ends.
Callbacks& started_callbacks() {
  static std::vector<Callbacks*> kept;
  kept.push_back(new Callbacks);
  kept.back()->start().or_throw();
  return *kept.back();
}

TEST(Callbacks, MayWaitForOtherCallbacks) {
  Callbacks& callbacks = started_callbacks();
  std::promise<void> last;
  std::promise<bool> first;
  callbacks.run([&] {
    std::promise<void> second;
    callbacks.run([&] {
      callbacks.run([&] { last.set_value(); });
      last.get_future().wait();
      second.set_value();
    });
    first.set_value(second.get_future().wait_for(kLimit) == std::future_status::ready);
  });
  EXPECT_TRUE(first.get_future().get());
}

TEST(Callbacks, MayWaitForAnotherOnceThreadsCanBeHadAgain) {
  Callbacks& callbacks = started_callbacks();
  auto none = std::make_unique<test::NoThreads>();
  std::promise<void> running, second;
  std::promise<bool> first;
  callbacks.run([&] {
    running.set_value();
    first.set_value(second.get_future().wait_for(kLimit) == std::future_status::ready);
  });
  running.get_future().wait();  // and no thread was left for it to start
  none.reset();
  callbacks.run([&] { second.set_value(); });
  EXPECT_TRUE(first.get_future().get());
}

TEST(Callbacks, CloseWaitsUntilThoseThatAreDueAreGone) {
  Callbacks& callbacks = started_callbacks();
  const auto kept = std::make_shared<int>();  // as a callback of Python keeps objects
  std::promise<void> may_end;
  callbacks.run([&, kept] { may_end.get_future().wait(); });
  callbacks.run([kept] {});
  may_end.set_value();
  EXPECT_TRUE(callbacks.close(kLimit));
  EXPECT_EQ(kept.use_count(), 1);
  EXPECT_EQ(callbacks.start().error().code, Code::kAborted);
  callbacks.run([kept] { ADD_FAILURE() << "called after close()"; });
  EXPECT_EQ(kept.use_count(), 2) << "what is given later is neither called nor destroyed";
}

TEST(Callbacks, CloseHasALimit) {
  Callbacks& callbacks = started_callbacks();
  std::promise<void> running, may_end;
  callbacks.run([&] {
    running.set_value();
    may_end.get_future().wait();
  });
  running.get_future().wait();
  EXPECT_FALSE(callbacks.close(std::chrono::milliseconds(1)));
  may_end.set_value();
  EXPECT_TRUE(callbacks.close(kLimit));
}

TEST(Callbacks, WithoutTheFirstThreadIsAnError) {
  Callbacks callbacks;
  const test::NoThreads none;
  EXPECT_EQ(callbacks.start().error().code, Code::kSystem);
}

}  // namespace
}  // namespace tutti::comm
