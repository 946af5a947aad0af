// Timers and traces of several ranks.
#include <gmock/gmock.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/harness/checkpoints.h"
#include "tests/harness/ranks.h"
#include "tutti/base/file.h"
#include "tutti/comm/collectives.h"
#include "tutti/metrics/gather_trace.h"
#include "tutti/metrics/timers_over_ranks.h"
#include "tutti/trace/chrome_trace.h"

namespace tutti {
namespace {

using std::chrono::microseconds;

void on_ranks(int size, const test::RankBody& body, const test::WorldOptions& options = {}) {
  const auto outcomes = test::run_threads(size, body, options);
  for (int r = 0; r < size; ++r) EXPECT_EQ(outcomes[std::size_t(r)].error, "") << "rank " << r;
}

TEST(TimersOverRanks, EveryRankGetsAll) {
  on_ranks(3, [](Group& world) {
    std::vector<TimerReading> mine = {{"forward", 1.0 + world.rank(), 2}};
    if (world.rank() == 2) mine.push_back({"only there", 7, 1});
    const auto timers = timers_over_ranks(world, mine);
    TUTTI_REQUIRE(timers.size() == 2, timers.size(), " timers");
    TUTTI_REQUIRE(timers[0].least == 1 && timers[0].most == 3 && timers[0].mean == 2 && timers[0].slowest == 2,
                  "another spread");
    TUTTI_REQUIRE(timers[1].name == "only there" && timers[1].ranks == 1, timers[1].name);
  });
}

// Rank r has one event, of 10 us from r * 100 us on.
Trace trace_of(int rank) {
  return {
      .totals = {{.name = "work", .calls = 1}},
      .threads = {{.id = 5, .name = "main", .events = {{.begin = microseconds(100 * rank), .took = microseconds(10)}}}},
      .begin = Clock::time_point(std::chrono::seconds(50))};
}

class GatherTrace : public testing::Test {
 protected:
  ~GatherTrace() override { std::filesystem::remove(path_); }
  const std::string path_ =
      std::filesystem::temp_directory_path() / ("tutti_trace_" + std::to_string(::getpid()) + ".json");
};

TEST_F(GatherTrace, OneFileOfAllRanks) {
  on_ranks(4, [&](Group& world) { write_chrome_trace(world, trace_of(world.rank()), path_).or_throw(); });
  const auto file = nlohmann::json::parse(*read_file(path_, 1 << 20));
  std::map<int, double> begins;
  for (const auto& event : file.at("traceEvents"))
    if (event.at("ph") == "X") begins[event.at("pid")] = event.at("ts");
  EXPECT_EQ(begins, (std::map<int, double>{{0, 0}, {1, 100}, {2, 200}, {3, 300}}));
  EXPECT_EQ(file.at("otherData").at("clock of rank 3"), "moved by 0.000 us, at most 0.000 us wrong");
}

TEST_F(GatherTrace, ClocksOfOtherHostsAreAsked) {
  const test::WorldOptions hosts{.network = ModelledNetwork{.between = {.latency = 1e-4, .bandwidth = 1e9}}};
  on_ranks(
      3,
      [](Group& world) {
        const TraceRank mine = compare_clocks(world);
        TUTTI_REQUIRE(mine.rank == world.rank() && !mine.host.empty(), "another rank");
        if (world.rank() == 0) {
          TUTTI_REQUIRE(mine.clock_error.count() == 0, "rank 0 has its own clock");
        } else {
          // Threads of one process share the clock: it is found to be no further away than was said.
          TUTTI_REQUIRE(mine.clock_error >= microseconds(100), "too good: ", mine.clock_error.count(), " ns");
          TUTTI_REQUIRE(std::abs(mine.clock_offset.count()) <= mine.clock_error.count(), mine.clock_offset.count(),
                        " ns away, ", mine.clock_error.count(), " said");
        }
      },
      hosts);
}

TEST_F(GatherTrace, AFileThatCannotBeWrittenIsReportedToAllRanks) {
  on_ranks(3, [&](Group& world) {
    const Status written = write_chrome_trace(world, trace_of(world.rank()), "/nonexistent/trace.json");
    TUTTI_REQUIRE(!written.ok(), "no error");
    const std::string text = to_string(written.error());
    TUTTI_REQUIRE(text == "System: rank 0: cannot write /nonexistent/trace.json: No such file or directory", text);
  });
}

TEST(RankTraces, LieOnOneTimeLineAndAreMerged) {
  const test::TemporaryFolder folder;
  const std::string traces = folder.path() + "/traces", merged = folder.path() + "/all.json";
  on_ranks(3, [&](Group& world) {
    Trace mine = trace_of(world.rank());
    mine.wall_clock = 1700000000.5 + world.rank();  // rank 0's counts
    write_rank_trace(world, mine, traces).or_throw();
  });
  const auto files = *traces_in(traces);
  ASSERT_EQ(files.size(), 3u);
  EXPECT_THAT(files[2], testing::EndsWith("/trace-rank0002.json"));
  const auto done = merge_traces(files, merged);
  ASSERT_TRUE(done.ok());
  EXPECT_THAT(done->notes, testing::IsEmpty());
  EXPECT_EQ(done->files, 3u);
  const auto file = nlohmann::json::parse(*read_file(merged, 1 << 20));
  std::map<int, double> begins;
  for (const auto& event : file.at("traceEvents"))
    if (event.at("ph") == "X") begins[event.at("pid")] = event.at("ts");
  EXPECT_EQ(begins, (std::map<int, double>{{0, 0}, {1, 100}, {2, 200}}));
  EXPECT_EQ(file.at("otherData").at("wall clock of 0"), 1700000000.5);
  EXPECT_TRUE(file.at("otherData").contains("clock of rank 2"));
}

TEST(RankTraces, AFolderThatCannotBeMadeIsReportedToAllRanks) {
  on_ranks(2, [&](Group& world) {
    const Status written = write_rank_trace(world, trace_of(world.rank()), "/proc/traces");
    TUTTI_REQUIRE(!written.ok(), "no error");
    const std::string text = to_string(written.error());
    TUTTI_REQUIRE(text.find("rank 0: cannot make the folder /proc/traces") != std::string::npos, text);
  });
}

// Asynchronous calls are seen under way, whatever the thread that submitted them does meanwhile.
TEST(GroupSpans, AnAsynchronousCallLiesOnTheLaneOfItsGroup) {
  start_trace();
  on_ranks(2, [](Group& world) {
    std::vector<float> data(1 << 16, 1.0f);
    all_reduce_async(world, std::span(data)).get();
  });
  const Trace trace = stop_trace();
  const auto lane = std::find_if(trace.threads.begin(), trace.threads.end(),
                                 [](const ThreadEvents& thread) { return thread.name == "group world"; });
  ASSERT_NE(lane, trace.threads.end());
  ASSERT_EQ(lane->events.size(), 2u) << "one of each rank";
  const auto& what = trace.totals[lane->events[0].which];
  EXPECT_EQ(what.name, "all_reduce");
  EXPECT_EQ(what.detail, "all_reduce (f32[65536], sum)");
  EXPECT_GT(lane->events[0].took.count(), 0);
}

}  // namespace
}  // namespace tutti
