#include "tutti/trace/flight/ring.h"

#include <gmock/gmock.h>

#include <atomic>
#include <thread>

namespace tutti::trace {
namespace {

class Ring : public testing::Test {
 protected:
  const FlightClock clock_;
  FlightRing ring_{8, clock_};

  FlightState state_of(std::uint64_t sequence) {
    const auto entry = ring_.read(sequence);
    return entry ? entry->state : FlightState::kBeingWritten;
  }
};

TEST_F(Ring, IsEmptyAtFirst) {
  EXPECT_EQ(ring_.capacity(), 8u);
  EXPECT_TRUE(ring_.newest(100).empty());
  EXPECT_FALSE(ring_.read(1));
}

TEST_F(Ring, RoundsUpToAPowerOfTwo) {
  EXPECT_EQ(FlightRing(2000, clock_).capacity(), 2048u);
  EXPECT_EQ(FlightRing(1, clock_).capacity(), 1u);
}

TEST_F(Ring, KeepsWhatWasCalled) {
  const CallSite site("train.cc", 212);
  ring_.started(5, {.shape = 11, .count = 22, .extra = 33, .site = site});
  const auto entry = ring_.read(5);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->sequence, 5u);
  EXPECT_EQ(entry->state, FlightState::kStarted);
  EXPECT_EQ(entry->call.shape, 11u);
  EXPECT_EQ(entry->call.count, 22u);
  EXPECT_EQ(entry->call.extra, 33u);
  EXPECT_STREQ(entry->call.site.file(), "train.cc");
  EXPECT_EQ(entry->call.site.line(), 212u);
  EXPECT_NE(entry->started, 0u);
  EXPECT_EQ(entry->scheduled, 0u);
  EXPECT_EQ(entry->ended, 0u);
}

TEST_F(Ring, AnOperationGoesThroughItsStates) {
  ring_.scheduled(1, {.shape = 1});
  EXPECT_EQ(state_of(1), FlightState::kScheduled);
  EXPECT_EQ(ring_.read(1)->started, 0u);
  ring_.started(1, 2);
  EXPECT_EQ(state_of(1), FlightState::kStarted);
  EXPECT_EQ(ring_.read(1)->call.shape, 2u);
  ring_.ended(1, true);
  EXPECT_EQ(state_of(1), FlightState::kCompleted);
  const auto entry = ring_.read(1);
  EXPECT_GE(entry->started, entry->scheduled);
  EXPECT_GE(entry->ended, entry->started);
  ring_.started(2, FlightCall{});
  ring_.ended(2, false);
  EXPECT_EQ(state_of(2), FlightState::kFailed);
  ring_.started(3, FlightCall{});
  ring_.completed_at_once(3);
  EXPECT_EQ(state_of(3), FlightState::kCompletedAtOnce);
  EXPECT_EQ(ring_.read(3)->ended, 0u);
}

// A slot that is used again tells nothing of its last tenant.
TEST_F(Ring, ALapLaterNothingIsLeft) {
  ring_.scheduled(1, {.shape = 1});
  ring_.started(1, 1);
  ring_.ended(1, true);
  ring_.started(9, {.shape = 9});
  EXPECT_FALSE(ring_.read(1));
  const auto entry = ring_.read(9);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->scheduled, 0u);
  EXPECT_EQ(entry->ended, 0u);
}

TEST_F(Ring, KeepsTheLastOnes) {
  for (std::uint64_t i = 1; i <= 20; ++i) ring_.started(i, {.shape = i});
  const auto all = ring_.newest(100);
  ASSERT_EQ(all.size(), 8u);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].sequence, 13 + i);
    EXPECT_EQ(all[i].call.shape, 13 + i);
  }
  const auto last = ring_.newest(3);
  ASSERT_EQ(last.size(), 3u);
  EXPECT_EQ(last[0].sequence, 18u);
}

// More calls outstanding than there are slots: what comes too late changes nothing.
TEST_F(Ring, AnOperationThatLostItsSlotChangesNothing) {
  ring_.scheduled(1, {.shape = 1});
  ring_.started(9, {.shape = 9});
  ring_.started(1, 5);
  ring_.ended(1, false);
  EXPECT_FALSE(ring_.read(1));
  const auto entry = ring_.read(9);
  ASSERT_TRUE(entry);
  EXPECT_EQ(entry->state, FlightState::kStarted);
  EXPECT_EQ(entry->call.shape, 9u);
}

// The fields of an entry always belong together, however fast they are written. (A slot is one cache line, so that a
// reader which does not look twice is caught where it is slow: by the build with TSan.)
TEST_F(Ring, ReadersSeeWholeEntries) {
  FlightRing ring(1, clock_);
  std::atomic<bool> running{false}, stop{false};
  std::thread writer([&] {
    for (std::uint64_t i = 1; !stop.load(std::memory_order_relaxed); ++i) {
      ring.started(i, {.shape = i, .count = i * 3, .extra = i * 5});
      if (i % 2)
        ring.completed_at_once(i);
      else
        ring.ended(i, true);
      running.store(true, std::memory_order_relaxed);
    }
  });
  while (!running.load(std::memory_order_relaxed)) std::this_thread::yield();
  std::size_t seen = 0;
  while (seen < 300000)
    for (const FlightEntry& entry : ring.newest(100)) {
      ++seen;
      ASSERT_EQ(entry.call.shape, entry.sequence);
      ASSERT_EQ(entry.call.count, entry.sequence * 3);
      ASSERT_EQ(entry.call.extra, entry.sequence * 5);
      if (entry.state == FlightState::kCompleted) {
        ASSERT_GE(entry.ended, entry.started);
      }
    }
  stop.store(true);
  writer.join();
}

// One thread submits while another drives.
TEST_F(Ring, SeveralWritersOfDifferentNumbers) {
  constexpr std::uint64_t kMany = 100000;
  std::atomic<std::uint64_t> submitted{0}, driven{0};
  std::thread driver([&] {
    for (std::uint64_t i = 1; i <= kMany; ++i) {
      while (submitted.load() < i) std::this_thread::yield();
      ring_.started(i, i);
      ring_.ended(i, true);
      driven.store(i);
    }
  });
  for (std::uint64_t i = 1; i <= kMany; ++i) {
    while (driven.load() + 6 < i) std::this_thread::yield();
    ring_.scheduled(i, {.shape = 0, .count = i});
    submitted.store(i);
  }
  driver.join();
  const auto all = ring_.newest(100);
  ASSERT_EQ(all.size(), 8u);
  for (const FlightEntry& entry : all) {
    EXPECT_EQ(entry.state, FlightState::kCompleted);
    EXPECT_EQ(entry.call.shape, entry.sequence);
    EXPECT_EQ(entry.call.count, entry.sequence);
  }
}

TEST(FlightClock, TicksBecomeMonotonicTime) {
  const FlightClock clock;
  const auto monotonic = [] {
    timespec at{};
    ::clock_gettime(CLOCK_MONOTONIC, &at);
    return std::int64_t(at.tv_sec) * 1000000000 + at.tv_nsec;
  };
  const std::int64_t before = monotonic();
  const std::uint64_t ticks = clock.ticks();
  const std::int64_t after = monotonic();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto scale = clock.scale();
  constexpr std::int64_t kCoarse = 20000000;  // CLOCK_MONOTONIC_COARSE stands still for a tick of the kernel
  EXPECT_GT(scale.monotonic(ticks), before - kCoarse);
  EXPECT_LT(scale.monotonic(ticks), after + kCoarse);
  EXPECT_GE(scale.now(), after);
}

}  // namespace
}  // namespace tutti::trace
