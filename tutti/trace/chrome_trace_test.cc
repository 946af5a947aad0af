#include "tutti/trace/chrome_trace.h"

#include <gmock/gmock.h>
#include <unistd.h>
#include <zlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tutti/base/file.h"

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
  EXPECT_EQ(names[3].at("args").at("name"), "engine (4 regions skipped)");
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

// ---- several files become one ----

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class MergeTraces : public testing::Test {
 protected:
  MergeTraces() { std::filesystem::create_directories(folder_); }
  ~MergeTraces() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name, const std::string& text) const {
    const std::string path = folder_ + "/" + name;
    write_file(path, text).or_throw();
    return path;
  }
  nlohmann::json merged() const { return nlohmann::json::parse(*read_file(output_, 1 << 20)); }

  const std::string folder_ = std::filesystem::temp_directory_path() / ("tutti_merge_" + std::to_string(::getpid()));
  const std::string output_ = folder_ + "/merged.out";
};

TEST_F(MergeTraces, MovesFilesOntoTheFirstOnesTimeLine) {
  const auto a = file("a.json", R"({"traceEvents":[{"ph":"X","pid":0,"ts":10,"dur":1},{"ph":"M","pid":0}],
                                    "otherData":{"wall clock of 0":1000.5}})");
  const auto b =
      file("b.json", R"({"traceEvents":[{"ph":"X","pid":1,"ts":10,"dur":1}],"otherData":{"wall clock of 0":1000.75}})");
  const auto done = merge_traces({a, b}, output_);
  ASSERT_TRUE(done.ok());
  EXPECT_THAT(done->notes, IsEmpty());
  EXPECT_EQ(done->events, 3u);
  const auto events = merged().at("traceEvents");
  EXPECT_EQ(events[0].at("ts"), 10);
  EXPECT_EQ(events[2].at("ts"), 250010.0);
}

// As Kineto writes it: microseconds since baseTimeNanoseconds.
TEST_F(MergeTraces, ReadsTheClockOfPyTorch) {
  const auto ours = file("a.json", R"({"traceEvents":[{"ph":"X","pid":0,"ts":10,"dur":1}],
                                       "otherData":{"wall clock of 0":1743521598.5}})");
  const auto theirs = file("b.json", R"({"baseTimeNanoseconds":1743521598000000000,
                                         "traceEvents":[{"ph":"X","pid":1,"ts":500020.5,"dur":1}]})");
  const auto done = merge_traces({ours, theirs}, output_);
  ASSERT_TRUE(done.ok());
  EXPECT_THAT(done->notes, IsEmpty());
  EXPECT_NEAR(merged().at("traceEvents")[1].at("ts").get<double>(), 20.5, 0.5) << "seconds since 1970 as a double";
}

TEST_F(MergeTraces, ReadsGzipFiles) {
  const std::string text = R"({"traceEvents":[{"ph":"X","pid":0,"ts":10,"name":")" + std::string(3 << 20, 'x') +
                           R"("}],"otherData":{"wall clock of 0":1000}})";
  const auto packed = folder_ + "/a.json.gz";
  gzFile out = gzopen(packed.c_str(), "wb");
  ASSERT_EQ(gzwrite(out, text.data(), unsigned(text.size())), int(text.size()));
  ASSERT_EQ(gzclose(out), Z_OK);
  EXPECT_THAT(*traces_in(folder_), ElementsAre(packed));
  const auto done = merge_traces({packed}, output_);
  ASSERT_TRUE(done.ok()) << to_string(done.error());
  EXPECT_THAT(done->notes, IsEmpty());
  EXPECT_EQ(done->events, 1u);
  EXPECT_EQ(
      nlohmann::json::parse(*read_file(output_, 8 << 20)).at("traceEvents")[0].at("name").get<std::string>().size(),
      std::size_t(3) << 20);
  const auto cut = file("cut.json.gz", read_file(packed, 1 << 20)->substr(0, 1000));
  EXPECT_THAT(to_string(merge_traces({cut}, output_).error()),
              HasSubstr("cut.json.gz ends within its compressed data"));
}

TEST_F(MergeTraces, GivesEachFileProcessesOfItsOwn) {
  const auto text = R"([{"ph":"X","pid":7,"ts":1},{"ph":"X","pid":"gpu","ts":1},{"ph":"X","pid":7,"ts":2}])";
  const auto done = merge_traces({file("a.json", text), file("b.json", text)}, output_);
  ASSERT_TRUE(done.ok());
  std::vector<std::string> pids;
  const auto all = merged();
  for (const auto& event : all.at("traceEvents")) pids.push_back(event.at("pid").dump());
  EXPECT_THAT(pids, ElementsAre("7", "\"gpu\"", "7", "1000000", "1000001", "1000000"));
  EXPECT_THAT(done->notes, ElementsAre(HasSubstr("a.json has no wall clock"), HasSubstr("b.json")));
}

TEST_F(MergeTraces, LeavesOutWhatNestsTooDeep) {
  const auto nested = [](std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  const auto trace = [&](std::size_t depth) {
    return R"([{"ph":"X","pid":1,"ts":1,"name":"[[\"[[","args":)" + nested(depth - 2) + "}]";
  };
  const auto done = merge_traces(
      {file("deep.json", trace(100)), file("deeper.json", trace(101)), file("hole.json", nested(1000000))}, output_);
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done->events, 1u);
  EXPECT_THAT(done->notes,
              ElementsAre(HasSubstr("deep.json has no wall clock"),
                          HasSubstr("deeper.json is not a Chrome trace: "
                                    "byte "),
                          HasSubstr("hole.json is not a Chrome trace: byte 100 nests more than 100 deep")));
}

TEST_F(MergeTraces, LeavesOutWhatIsNoTraceAndSaysSo) {
  const auto good = file("good.json", R"([{"ph":"X","pid":1,"ts":1}, 5, null])");
  const auto done = merge_traces(
      {file("report.json", R"({"ranks":2})"), file("torn.json", R"({"traceEvents":[{)"), good, folder_ + "/none.json"},
      output_);
  ASSERT_TRUE(done.ok());
  EXPECT_EQ(done->files, 1u);
  EXPECT_EQ(done->events, 1u);
  EXPECT_THAT(done->notes, ElementsAre(HasSubstr("report.json is not a Chrome trace: it has no list traceEvents"),
                                       HasSubstr("torn.json is not a Chrome trace"),
                                       HasSubstr("good.json has no wall clock"), HasSubstr("none.json")));
}

TEST_F(MergeTraces, SaysWhatIsWrong) {
  const auto none = merge_traces({file("a.json", "[1")}, output_);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(to_string(none.error()), HasSubstr("none of 1 files is a Chrome trace; the first: skipped: Corrupt: "));
  EXPECT_THAT(to_string(merge_traces({}, output_).error()), HasSubstr("none of 0 files"));
  EXPECT_THAT(to_string(merge_traces({file("b.json", "[]")}, "/nonexistent/out").error()),
              HasSubstr("cannot write /nonexistent/out"));
  EXPECT_THAT(to_string(traces_in("/nonexistent").error()), HasSubstr("cannot read the folder /nonexistent"));
}

TEST_F(MergeTraces, TouchesNothingWhereThereIsNothingToMerge) {
  write_file(output_, "an earlier one").or_throw();
  EXPECT_FALSE(merge_traces({file("a.json", "[1")}, output_).ok());
  EXPECT_EQ(*read_file(output_, 100), "an earlier one");
}

TEST_F(MergeTraces, NeverWritesOverWhatItReads) {
  const auto a = file("a.json", "[]"), b = file("b.json", R"([{"ph":"X","pid":1,"ts":1}])");
  const std::string other_name = folder_ + "/other.json";
  std::filesystem::create_symlink(b, other_name);
  for (const auto& output : {b, other_name}) {
    const auto refused = merge_traces({a, b}, output);
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(to_string(refused.error()), HasSubstr("b.json is both input and output (hint: give another output)"));
  }
  EXPECT_EQ(*read_file(b, 100), R"([{"ph":"X","pid":1,"ts":1}])");
}

TEST_F(MergeTraces, TakesTheJsonFilesOfAFolderByName) {
  const auto b = file("b.json", ""), a = file("a.json", "");
  file("notes.txt", "");
  EXPECT_THAT(*traces_in(folder_), ElementsAre(a, b));
}

}  // namespace
}  // namespace tutti
