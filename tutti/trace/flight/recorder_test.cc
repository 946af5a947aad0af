#include "tutti/trace/flight/recorder.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti::trace {
namespace {

using testing::ElementsAre;
using testing::EndsWith;
using testing::HasSubstr;

void describe(const FlightCall& call, FlightOperation& o) {
  o.kind = "barrier";
  o.call = "barrier (" + std::to_string(call.count) + ")";
}

class Recorder : public testing::Test {
 protected:
  Recorder() {
    std::string pattern = std::filesystem::temp_directory_path() / "tutti-recorder-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Recorder() override { std::filesystem::remove_all(folder_); }

  FlightRecorder::Options options(std::size_t entries = 2000) const {
    return {.entries = entries, .folder = folder_, .job = "j", .rank = 1, .world_size = 2};
  }
  static FlightGroup group(std::uint64_t id, const std::string& name) {
    return {.id = id, .name = name, .rank = 1, .global_ranks = {0, 1}};
  }
  std::string folder_;
};

TEST_F(Recorder, RecordsTheOperationsOfAllGroups) {
  FlightRecorder recorder(options(), describe);
  const auto world = recorder.add(group(1, "world")), pair = recorder.add(group(2, "world/pair"));
  world->collectives.started(1, {.count = 10, .site = CallSite::here()});
  world->collectives.completed_at_once(1);
  pair->collectives.scheduled(1, {.count = 20});
  world->exchanges.started(1, {.count = 30});
  world->exchanges.ended(1, false);
  const FlightDump dump = recorder.snapshot();
  EXPECT_EQ(dump.rank, 1);
  EXPECT_EQ(dump.pid, ::getpid());
  ASSERT_EQ(dump.groups.size(), 2u);
  EXPECT_EQ(dump.groups[1].name, "world/pair");
  ASSERT_EQ(dump.operations.size(), 3u);  // by time
  EXPECT_EQ(dump.operations[0].call, "barrier (10)");
  EXPECT_EQ(dump.operations[0].state, FlightOperation::State::kCompleted);
  EXPECT_THAT(dump.operations[0].site, HasSubstr("recorder_test.cc:"));
  EXPECT_EQ(dump.operations[1].group, 1);
  EXPECT_EQ(dump.operations[1].state, FlightOperation::State::kScheduled);
  EXPECT_EQ(dump.operations[1].site, "");
  EXPECT_TRUE(dump.operations[2].exchange);
  EXPECT_EQ(dump.operations[2].state, FlightOperation::State::kFailed);
  EXPECT_LE(dump.operations[2].ended, dump.monotonic);
}

// The busy group does not push out what the seldom one did.
TEST_F(Recorder, KeepsTheLastOperationsOfEveryGroup) {
  FlightRecorder recorder(options(256), describe);
  const auto seldom = recorder.add(group(1, "seldom")), busy = recorder.add(group(2, "busy"));
  for (std::uint64_t i = 1; i <= 3; ++i) seldom->collectives.started(i, FlightCall{});
  for (std::uint64_t i = 1; i <= 10000; ++i) busy->collectives.started(i, FlightCall{});
  const FlightDump dump = recorder.snapshot();
  EXPECT_EQ(dump.operations.size(), 256u);
  EXPECT_EQ(dump.operations.front().group, 0);
  EXPECT_EQ(dump.operations.back().sequence, 10000u);
}

TEST_F(Recorder, RemembersTheLastGroupsThatWereLeft) {
  FlightRecorder recorder(options(), describe);
  for (std::uint64_t i = 1; i <= 50; ++i) {
    const auto track = recorder.add(group(i, "g" + std::to_string(i)));
    if (i > 1) track->left.store(true);
  }
  const FlightDump dump = recorder.snapshot();
  EXPECT_EQ(dump.groups.front().name, "g1");
  EXPECT_FALSE(dump.groups.front().left);
  EXPECT_LE(dump.groups.size(), 11u);
  EXPECT_EQ(dump.groups.back().name, "g50");
  EXPECT_TRUE(dump.groups.back().left);
}

TEST_F(Recorder, WritesAgainOverAnEarlierRecord) {
  FlightRecorder recorder(options(), describe);
  const auto world = recorder.add(group(1, "world"));
  const auto path = recorder.write(FlightRecorder::Why::kAsked, "SIGUSR2");
  ASSERT_TRUE(path.ok()) << to_string(path.error());
  EXPECT_THAT(*path, EndsWith("/flight-rank1.json"));
  world->collectives.started(1, FlightCall{});
  ASSERT_TRUE(recorder.write(FlightRecorder::Why::kFailure, "it failed").ok());
  const auto files = read_flight_folders({folder_});
  ASSERT_TRUE(files.ok());
  ASSERT_EQ(files->dumps.size(), 1u);
  EXPECT_THAT(files->dumps[0].reasons, ElementsAre("SIGUSR2", "it failed"));
  EXPECT_TRUE(files->dumps[0].failed);
  EXPECT_EQ(files->dumps[0].operations.size(), 1u);
}

TEST_F(Recorder, PutsTheRecordOfAnEarlierRunAside) {
  FlightRecorder recorder(options(), describe);
  recorder.put_older_record_aside();
  ASSERT_TRUE(recorder.write(FlightRecorder::Why::kAsked, "now").ok());
  FlightRecorder(options(), describe).put_older_record_aside();
  EXPECT_TRUE(std::filesystem::exists(folder_ + "/flight-rank1.previous.json"));
  EXPECT_TRUE(ranks_with_flight_files(folder_, {}).empty());
}

// Who made it may have linked it to where this user's files are.
TEST_F(Recorder, InAFolderOfOthersNothingIsPutAside) {
  FlightRecorder::Options other = options();
  other.folder = folder_ + "/tutti-flight-" + std::to_string(::geteuid()) + "-job";
  std::filesystem::create_directory(folder_ + "/precious");
  std::filesystem::create_directory_symlink("precious", other.folder);
  const std::string record = folder_ + "/precious/" + flight_file_name(other.rank);
  std::ofstream(record) << "{}";
  FlightRecorder(other, describe).put_older_record_aside();
  EXPECT_TRUE(std::filesystem::exists(record));
}

// The name of a file whose library is no longer there.
TEST_F(Recorder, AnUnreadableCallSiteIsSkipped) {
  void* const page = ::mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  FlightRecorder recorder(options(), describe);
  const auto world = recorder.add(group(1, "world"));
  world->collectives.started(1, {.site = CallSite(static_cast<const char*>(page), 7)});
  EXPECT_EQ(recorder.snapshot().operations.at(0).site, "");
  ::munmap(page, 4096);
}

TEST_F(Recorder, AFolderThatCannotBeMadeIsASentence) {
  std::ofstream(folder_ + "/file") << "x";
  auto where = options();
  where.folder = folder_ + "/file/below";
  FlightRecorder recorder(where, describe);
  const auto written = recorder.write(FlightRecorder::Why::kAsked, "now");
  ASSERT_FALSE(written.ok());
  EXPECT_THAT(to_string(written.error()), HasSubstr("cannot make the folder " + folder_ + "/file/below"));
}

}  // namespace
}  // namespace tutti::trace
