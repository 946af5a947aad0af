#include "tutti/trace/region.h"

#include <gmock/gmock.h>
#include <pthread.h>

#include <barrier>
#include <thread>

namespace tutti {
namespace {

using testing::IsEmpty;
using testing::SizeIs;

const RegionTotals* find(const Trace& trace, const std::string& name, const std::string& detail = {}) {
  for (const RegionTotals& totals : trace.totals)
    if (totals.name == name && totals.detail == detail) return &totals;
  return nullptr;
}

void spin(Duration time) {
  for (const auto begin = now(); now() - begin < time;) {
  }
}

TEST(Region, NothingIsRecordedWithoutATrace) {
  { Region region("before"); }
  start_trace();
  EXPECT_TRUE(is_tracing());
  const Trace trace = stop_trace();
  EXPECT_FALSE(is_tracing());
  EXPECT_THAT(trace.totals, IsEmpty());
  { Region region("after"); }
  EXPECT_THAT(stop_trace().totals, IsEmpty());
}

TEST(Region, TimeWithinBelongsToTheInnerOne) {
  using std::chrono::milliseconds;
  start_trace();
  for (int i = 0; i < 3; ++i) {
    Region outer("outer");
    spin(milliseconds(1));
    Region inner("inner");
    spin(milliseconds(2));
    Region innermost("innermost");
    spin(milliseconds(4));
  }
  const Trace trace = stop_trace();
  ASSERT_THAT(trace.totals, SizeIs(3));
  const auto *outer = find(trace, "outer"), *inner = find(trace, "inner"), *innermost = find(trace, "innermost");
  ASSERT_TRUE(outer && inner && innermost);
  EXPECT_EQ(outer->calls, 3);
  EXPECT_EQ(outer->self + inner->total, outer->total);
  EXPECT_EQ(inner->self + innermost->total, inner->total);
  EXPECT_EQ(innermost->self, innermost->total);
  EXPECT_GE(outer->self, milliseconds(3));
  EXPECT_GE(inner->self, milliseconds(6));
  EXPECT_GE(innermost->self, milliseconds(12));
  EXPECT_GE(innermost->shortest, milliseconds(4));
  EXPECT_LE(innermost->shortest * 3, innermost->total);
  EXPECT_GE(innermost->longest * 3, innermost->total);
  EXPECT_GE(trace.took, outer->total);
}

TEST(Region, EventsLieWithinOneAnother) {
  start_trace();
  {
    Region outer("outer");
    Region inner("inner");
  }
  const Trace trace = stop_trace();
  ASSERT_THAT(trace.threads, SizeIs(1));
  EXPECT_EQ(trace.threads[0].name, "main");
  const auto& events = trace.threads[0].events;
  ASSERT_THAT(events, SizeIs(2));
  EXPECT_EQ(trace.totals[events[0].which].name, "inner");
  EXPECT_GE(events[1].begin, Duration(0));
  EXPECT_LE(events[1].begin, events[0].begin);
  EXPECT_LE(events[0].begin + events[0].took, events[1].begin + events[1].took);
}

TEST(Region, ThreadsAreApartAndTotalsTogether) {
  start_trace();
  std::thread other([] {
    ::pthread_setname_np(::pthread_self(), "reader");
    Region region("work");
  });
  other.join();
  { Region region("work"); }
  const Trace trace = stop_trace();
  ASSERT_TRUE(find(trace, "work"));
  EXPECT_EQ(find(trace, "work")->calls, 2);
  ASSERT_THAT(trace.threads, SizeIs(2));
  EXPECT_EQ(trace.threads[0].name, "main");
  EXPECT_EQ(trace.threads[1].name, "reader");
  EXPECT_NE(trace.threads[0].id, trace.threads[1].id);
}

TEST(Region, DetailsDistinguishRegionsAndCostNothingWithoutATrace) {
  int asked = 0;
  const auto shapes = [&](const char* text) {
    return [&asked, text] {
      ++asked;
      return std::string(text);
    };
  };
  { Region region("linear", shapes("[2, 3]")); }
  EXPECT_EQ(asked, 0);
  start_trace();
  { Region region("linear", shapes("[2, 3]")); }
  { Region region("linear", shapes("[4, 3]")); }
  { Region region("linear", shapes("[2, 3]")); }
  const Trace trace = stop_trace();
  EXPECT_EQ(asked, 3);
  ASSERT_TRUE(find(trace, "linear", "[2, 3]") && find(trace, "linear", "[4, 3]"));
  EXPECT_EQ(find(trace, "linear", "[2, 3]")->calls, 2);
}

TEST(Region, BeyondTheRoomForEventsTotalsStayRight) {
  start_trace({.most_events = 5});
  for (int i = 0; i < 12; ++i) Region region("often");
  const Trace trace = stop_trace();
  EXPECT_EQ(find(trace, "often")->calls, 12);
  EXPECT_THAT(trace.threads[0].events, SizeIs(5));
  EXPECT_EQ(trace.threads[0].left_out, 7u);
}

TEST(Region, WhatIsOpenAtEitherEndIsNotInIt) {
  {
    Region before("open before");
    start_trace();
    Region inside("inside");
  }
  Trace trace = stop_trace();
  ASSERT_THAT(trace.totals, SizeIs(1));
  EXPECT_EQ(trace.totals[0].name, "inside");

  start_trace();
  {
    Region across("open across");
    trace = stop_trace();
    EXPECT_TRUE(!find(trace, "open across") || find(trace, "open across")->calls == 0);
    start_trace();
    Region inside("inside");
  }
  trace = stop_trace();
  ASSERT_THAT(trace.totals, SizeIs(1));
  EXPECT_EQ(trace.totals[0].self, trace.totals[0].total);
}

TEST(Region, TracesMayEndWhileOthersWork) {
  std::atomic<bool> done{false};
  std::barrier ready(5);
  std::vector<std::thread> workers;
  for (int i = 0; i < 4; ++i)
    workers.emplace_back([&] {
      ready.arrive_and_wait();
      while (!done) {
        Region outer("outer");
        Region inner("inner");
      }
    });
  ready.arrive_and_wait();
  std::int64_t calls = 0;
  for (int i = 0; i < 50; ++i) {
    start_trace();
    spin(std::chrono::microseconds(200));
    const Trace trace = stop_trace();
    for (const RegionTotals& totals : trace.totals) {
      calls += totals.calls;
      EXPECT_GE(totals.self.count(), 0);
      EXPECT_LE(totals.self, totals.total);
    }
  }
  done = true;
  for (auto& worker : workers) worker.join();
  EXPECT_GT(calls, 0);
}

TEST(Region, SpansLieOnLanesOfTheirOwn) {
  using std::chrono::milliseconds;
  record_span("before", "lost", "", now(), now());
  start_trace();
  const auto begin = now();
  { Region region("computing"); }
  record_span("group world", "all_reduce", "f32[8]", begin, begin + milliseconds(5));
  std::thread([&] {
    record_span("group world", "all_reduce", "f32[8]", begin + milliseconds(5), begin + milliseconds(6));
    record_span("group dp", "broadcast", "", begin, begin + milliseconds(1));
    record_span("group dp", "began before the trace", "", begin - std::chrono::hours(1), begin);
  }).join();
  const Trace trace = stop_trace();
  ASSERT_THAT(trace.threads, SizeIs(3));
  EXPECT_EQ(trace.threads[0].name, "main");
  const auto& world = trace.threads[1];
  EXPECT_EQ(world.name, "group world");
  EXPECT_GE(world.id, kFirstLane);
  ASSERT_THAT(world.events, SizeIs(2));
  EXPECT_EQ(world.events[0].took, milliseconds(5));
  EXPECT_EQ(world.events[0].begin, begin - trace.begin);
  EXPECT_NE(trace.threads[2].id, world.id);
  const auto* reduced = find(trace, "all_reduce", "f32[8]");
  ASSERT_TRUE(reduced);
  EXPECT_TRUE(reduced->is_span);
  EXPECT_EQ(reduced->calls, 2);
  EXPECT_EQ(reduced->total, milliseconds(6));
  EXPECT_FALSE(find(trace, "began before the trace"));
  EXPECT_FALSE(find(trace, "computing")->is_span);
}

}  // namespace
}  // namespace tutti
