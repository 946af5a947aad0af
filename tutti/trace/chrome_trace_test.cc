#include "tutti/trace/chrome_trace.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace tutti {
namespace {

using nlohmann::json;
using std::chrono::microseconds;

const Clock::time_point kBegin = Clock::time_point(std::chrono::seconds(100));

Trace sample() {
  return {.totals = {{.name = "DLRM \"forward\"", .calls = 1}, {.name = "linear", .detail = "[2, 3]", .calls = 1}},
          .threads = {{.id = 17,
                       .name = "main",
                       .events = {{.which = 1, .begin = microseconds(20), .took = microseconds(5)},
                                  {.which = 0, .begin = microseconds(10), .took = microseconds(30)}}},
                      {.id = 18, .name = "engine", .left_out = 4}},
          .begin = kBegin};
}

std::vector<json> of_kind(const json& file, const std::string& kind) {
  std::vector<json> events;
  for (const json& event : file.at("traceEvents"))
    if (event.at("ph") == kind) events.push_back(event);
  return events;
}

TEST(ChromeTrace, OneRank) {
  const json file = json::parse(chrome_trace(sample(), 3));
  const auto events = of_kind(file, "X");
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0], json::parse(R"({"ph":"X","cat":"region","name":"linear","args":{"detail":"[2, 3]"},"pid":3,
                                       "tid":17,"ts":20.0,"dur":5.0})"));
  EXPECT_EQ(events[1].at("name"), "DLRM \"forward\"");
  const auto names = of_kind(file, "M");
  ASSERT_EQ(names.size(), 4u);
  EXPECT_EQ(names[0].at("args").at("name"), "rank 3");
  EXPECT_EQ(names[1].at("args").at("sort_index"), 3);
  EXPECT_EQ(names[2].at("args").at("name"), "main");
  EXPECT_EQ(names[2].at("tid"), 17);
  EXPECT_EQ(names[3].at("args").at("name"), "engine (4 regions left out)");
}

TEST(ChromeTrace, SeveralRanksOnOneTimeLine) {
  const TraceRank ranks[] = {
      {.rank = 0, .host = "a"},
      {.rank = 1, .host = "b", .clock_offset = microseconds(-1500), .clock_error = microseconds(7)}};
  Trace later = sample();
  later.begin += microseconds(2000);
  const std::string text = chrome_trace_head(ranks) + chrome_events(sample(), ranks[0], kBegin) + kChromeTraceComma +
                           chrome_events(later, ranks[1], kBegin) + kChromeTraceTail;
  const json file = json::parse(text);
  const auto events = of_kind(file, "X");
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].at("ts"), 20.0);
  EXPECT_EQ(events[2].at("ts"), 520.0);
  EXPECT_EQ(events[2].at("pid"), 1);
  EXPECT_EQ(of_kind(file, "M")[4].at("args").at("name"), "rank 1 on b");
  EXPECT_EQ(file.at("otherData").at("clock of rank 1"), "moved by -1500.000 us, at most 7.000 us wrong");
}

TEST(ChromeTrace, WhatIsNoUtf8IsStillJson) {
  Trace trace = sample();
  trace.totals[0].name = "\xff";
  EXPECT_FALSE(json::parse(chrome_trace(trace), nullptr, false).is_discarded());
}

TEST(ChromeTrace, AnEmptyTraceIsAFile) { EXPECT_EQ(of_kind(json::parse(chrome_trace({})), "X").size(), 0u); }

}  // namespace
}  // namespace tutti
