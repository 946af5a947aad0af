#include "tutti/transport/event_loop.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>
#include <vector>

namespace tutti::transport {
namespace {

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    left = Fd(fds[0]);
    right = Fd(fds[1]);
  }
  void write() { EXPECT_EQ(::write(left.get(), "x", 1), 1); }
  Fd left, right;
};

const Duration kLong = std::chrono::seconds(60), kNone = Duration(0);

TEST(EventLoop, CallsBackWhenReadable) {
  const auto loop = EventLoop::create().or_throw();
  Pair pair;
  std::uint32_t seen = 0;
  loop->add(pair.right.get(), EPOLLIN, [&](std::uint32_t events) { seen = events; }).or_throw();
  loop->run_once(kNone).or_throw();
  EXPECT_EQ(seen, 0u);
  pair.write();
  loop->run_once(kLong).or_throw();
  EXPECT_EQ(seen, std::uint32_t(EPOLLIN));
}

TEST(EventLoop, ModifyChangesWhatIsWatched) {
  const auto loop = EventLoop::create().or_throw();
  Pair pair;
  int calls = 0;
  loop->add(pair.right.get(), 0, [&](std::uint32_t) { ++calls; }).or_throw();
  loop->run_once(kNone).or_throw();
  EXPECT_EQ(calls, 0);
  loop->modify(pair.right.get(), EPOLLOUT).or_throw();
  loop->run_once(kLong).or_throw();
  EXPECT_EQ(calls, 1);
  loop->remove(pair.right.get());
  loop->run_once(kNone).or_throw();
  EXPECT_EQ(calls, 1);
  EXPECT_FALSE(loop->modify(pair.right.get(), EPOLLIN).ok());
}

// Both are ready in one batch; whoever comes first closes the other and opens a new pair, which gets the same numbers.
TEST(EventLoop, EventsOfARemovedDescriptorDoNotReachItsSuccessor) {
  const auto loop = EventLoop::create().or_throw();
  Pair first, second;
  std::vector<Pair> later;
  int calls = 0, stray = 0;
  const auto replace = [&](Pair& other) {
    if (++calls > 1) return;
    const int number = other.right.get();
    loop->remove(number);
    other.right.reset();
    other.left.reset();
    for (int i = 0; i < 2; ++i) {
      Pair& fresh = later.emplace_back();
      loop->add(fresh.left.get(), EPOLLIN, [&](std::uint32_t) { ++stray; }).or_throw();
      loop->add(fresh.right.get(), EPOLLIN, [&](std::uint32_t) { ++stray; }).or_throw();
    }
  };
  later.reserve(2);
  loop->add(first.right.get(), EPOLLIN, [&](std::uint32_t) { replace(second); }).or_throw();
  loop->add(second.right.get(), EPOLLIN, [&](std::uint32_t) { replace(first); }).or_throw();
  first.write();
  second.write();
  loop->run_once(kLong).or_throw();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(stray, 0);
}

TEST(EventLoop, CallbackMayRemoveItself) {
  const auto loop = EventLoop::create().or_throw();
  Pair pair;
  int calls = 0;
  const auto keep = std::make_shared<int>(7);
  loop->add(pair.right.get(), EPOLLIN,
            [&, keep](std::uint32_t) {
              loop->remove(pair.right.get());
              calls += *keep;
            })
      .or_throw();
  pair.write();
  loop->run_once(kLong).or_throw();
  loop->run_once(kNone).or_throw();
  EXPECT_EQ(calls, 7);
  EXPECT_EQ(keep.use_count(), 1);
}

TEST(EventLoop, TimersFireInOrderAndCanBeCancelled) {
  const auto loop = EventLoop::create().or_throw();
  std::vector<int> fired;
  const auto begin = now();
  loop->at(begin + std::chrono::milliseconds(20), [&] { fired.push_back(2); });
  loop->at(begin + std::chrono::milliseconds(10), [&] { fired.push_back(1); });
  const auto third = loop->at(begin + std::chrono::milliseconds(15), [&] { fired.push_back(3); });
  loop->cancel(third);
  while (fired.size() < 2) loop->run_once().or_throw();
  EXPECT_EQ(fired, (std::vector<int>{1, 2}));
  EXPECT_GE(now(), begin + std::chrono::milliseconds(20));
}

TEST(EventLoop, TimerThatSetsAnotherForNowDoesNotStarveTheRest) {
  const auto loop = EventLoop::create().or_throw();
  int fired = 0;
  std::function<void()> again = [&] {
    ++fired;
    loop->at(now(), again);
  };
  loop->at(now(), again);
  loop->run_once().or_throw();
  EXPECT_EQ(fired, 1);
  loop->run_once().or_throw();
  EXPECT_EQ(fired, 2);
}

TEST(EventLoop, WakeEndsTheWaitOfAnotherThread) {
  const auto loop = EventLoop::create().or_throw();
  std::thread waker([&] { loop->wake(); });
  loop->run_once(kLong).or_throw();
  waker.join();
  EXPECT_TRUE(loop->run_once(kNone).ok());
}

}  // namespace
}  // namespace tutti::transport
