#include "tutti/trace/flight/dump.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "tutti/base/env.h"

namespace tutti::trace {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

FlightDump some_dump(int rank = 0, double wall = 1000) {
  FlightDump dump{.job = "job", .rank = rank, .world_size = 4, .host = "h", .pid = 5};
  dump.reasons = {"Timeout: \"quoted\"\nline"};
  dump.failed = true;
  dump.wall = wall;
  dump.monotonic = 123456789012345;
  dump.groups = {{.id = 0xffffffffffffff00u, .name = "world", .rank = rank, .global_ranks = {0, 1, 2, 3}}};
  dump.operations = {{.group = 0,
                      .sequence = 1ull << 50,
                      .state = FlightOperation::State::kFailed,
                      .call = "all_reduce (f32[4], sum)",
                      .kind = "all_reduce",
                      .dtype = "f32",
                      .op = "sum",
                      .count = 4,
                      .bytes = 16,
                      .way = "direct",
                      .site = "a \"b\"\xff.cc:3",
                      .scheduled = 1,
                      .started = 2,
                      .ended = 3},
                     {.group = 0,
                      .exchange = true,
                      .sequence = 2,
                      .call = "send (f32[4], to 3, tag 7)",
                      .kind = "send",
                      .dtype = "f32",
                      .root = 3,
                      .tag = 7,
                      .started = 5}};
  return dump;
}

class Files : public testing::Test {
 protected:
  Files() {
    std::string pattern = std::filesystem::temp_directory_path() / "tutti-files-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
  }
  ~Files() override {
    temporary_ ? ::setenv("TMPDIR", temporary_->c_str(), 1) : ::unsetenv("TMPDIR");
    std::filesystem::remove_all(folder_);
  }
  void put(const std::string& name, const std::string& text) const { std::ofstream(folder_ + "/" + name) << text; }
  std::string error_of_reading() const {
    const auto files = read_flight_folders({folder_});
    return files.ok() ? "" : to_string(files.error());
  }
  std::string folder_;
  const std::optional<std::string> temporary_ = env("TMPDIR");  // a test may change it
};

TEST_F(Files, TextAndBack) {
  const FlightDump dump = some_dump(2);
  const auto back = parse_flight_dump(to_text(dump));
  ASSERT_TRUE(back.ok()) << to_string(back.error());
  EXPECT_EQ(to_text(*back), to_text(dump));
  EXPECT_EQ(back->reasons, dump.reasons);
  EXPECT_EQ(back->groups[0].id, dump.groups[0].id);
  EXPECT_EQ(back->operations[0].sequence, 1ull << 50);
  EXPECT_THAT(back->operations[0].site, testing::StartsWith("a \"b\""));
  EXPECT_EQ(back->operations[1].root, 3);
  EXPECT_EQ(back->operations[1].tag, 7);
}

TEST_F(Files, ReadsByRank) {
  for (const int rank : {3, 0, 1}) ASSERT_TRUE(write_flight_dump(some_dump(rank), folder_).ok());
  put("flight-rank0.previous.json", "{}");
  put("notes.txt", "mine");
  const auto files = read_flight_folders({folder_});
  ASSERT_TRUE(files.ok());
  EXPECT_TRUE(files->problems.empty());
  ASSERT_EQ(files->dumps.size(), 3u);
  EXPECT_EQ(files->dumps[1].rank, 1);
  EXPECT_THAT(ranks_with_flight_files(folder_, {}), ElementsAre(0, 1, 3));
  EXPECT_TRUE(ranks_with_flight_files(folder_, std::chrono::system_clock::now() + std::chrono::hours(1)).empty());
}

// The report of the failed attempt has named this folder; the attempt after it put the records aside.
TEST_F(Files, AfterARestartThoseOfTheAttemptBeforeItAreRead) {
  for (const int rank : {0, 1}) {
    ASSERT_TRUE(write_flight_dump(some_dump(rank), folder_).ok());
    const std::string path = folder_ + "/flight-rank" + std::to_string(rank);
    std::filesystem::rename(path + ".json", path + ".previous.json");
  }
  const auto files = read_flight_folders({folder_});
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(files->dumps.size(), 2u);
  EXPECT_THAT(files->problems,
              ElementsAre("no rank has written a record since the last start; these are of the one before it"));
}

TEST_F(Files, MakesItsFolderAndLeavesNothingElse) {
  const auto path = write_flight_dump(some_dump(), folder_ + "/a/b");
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(*path, folder_ + "/a/b/flight-rank0.json");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_ + "/a/b"), {}), 1);
}

TEST_F(Files, AMissingFolder) {
  const auto files = read_flight_folders({folder_ + "/nowhere"});
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.error().code, Code::kNotFound);
  EXPECT_THAT(to_string(files.error()), HasSubstr("there is no folder " + folder_ + "/nowhere"));
}

TEST_F(Files, AFileInPlaceOfItsFolder) {
  ASSERT_TRUE(write_flight_dump(some_dump(), folder_).ok());
  const auto files = read_flight_folders({folder_ + "/flight-rank0.json"});
  ASSERT_FALSE(files.ok());
  EXPECT_EQ(files.error().code, Code::kUsage);
  EXPECT_THAT(files.error().detail,
              HasSubstr("/flight-rank0.json is a file, not a folder with the records of all ranks"));
  EXPECT_EQ(files.error().hint, "tutti flight " + folder_);
  EXPECT_EQ(read_flight_folders({"/etc/passwd"}).error().hint,
            "tutti flight DIR, where the job's flight-rank0.json, ... are");
}

TEST_F(Files, AnEmptyFolder) {
  EXPECT_THAT(error_of_reading(), AllOf(HasSubstr("there is no flight record (flight-rank0.json, ...) in " + folder_),
                                        HasSubstr("SIGUSR2")));
}

TEST_F(Files, DamagedFilesAreReportedAndTheRestIsRead) {
  ASSERT_TRUE(write_flight_dump(some_dump(0), folder_).ok());
  const std::string whole = to_text(some_dump(1));
  put("flight-rank1.json", whole.substr(0, whole.size() - 30));
  put("flight-rank2.json", "hello");
  put("flight-rank3.json", "");
  put("flight-rank4.json", "{\"format\":\"tutti flight record\",\"version\":99}");
  put("flight-rank5.json", "{\"format\":\"tutti flight record\",\"version\":1}");
  ASSERT_EQ(::mkfifo((folder_ + "/flight-rank6.json").c_str(), 0600), 0);  // nobody ever writes into it
  const auto files = read_flight_folders({folder_});
  ASSERT_TRUE(files.ok());
  EXPECT_EQ(files->dumps.size(), 1u);
  EXPECT_TRUE(files->damaged);
  EXPECT_THAT(files->problems,
              ElementsAre(folder_ + "/flight-rank1.json is truncated or damaged: 1 of its 2 operations can be read",
                          folder_ + "/flight-rank2.json is not a flight record of tutti",
                          folder_ + "/flight-rank3.json is not a flight record of tutti",
                          folder_ + "/flight-rank4.json is a flight record of another version of tutti (this one "
                                    "reads version 1)",
                          folder_ + "/flight-rank5.json is damaged: it lacks required fields",
                          folder_ + "/flight-rank6.json is a folder, a pipe or a device"));
}

// Whatever is in a file, nothing is read beyond what it promises.
TEST_F(Files, FactsThatCannotBe) {
  const auto refusal = [](const std::function<void(FlightDump&)>& spoil) {
    FlightDump dump = some_dump();
    spoil(dump);
    const auto parsed = parse_flight_dump(to_text(dump));
    return parsed.ok() ? "" : parsed.error().detail;
  };
  EXPECT_EQ(refusal([](FlightDump&) {}), "");
  EXPECT_EQ(refusal([](FlightDump& d) { d.rank = 4; }), "says that it is of rank 4 of 4");
  EXPECT_EQ(refusal([](FlightDump& d) { d.groups[0].global_ranks[1] = 9; }),
            "has a group \"world\" with invalid ranks");
  EXPECT_EQ(refusal([](FlightDump& d) { d.groups[0].rank = 4; }), "has a group \"world\" with invalid ranks");
  EXPECT_EQ(refusal([](FlightDump& d) { d.operations[0].group = 1; }),
            "has an operation of a group that it does not have");
  EXPECT_EQ(refusal([](FlightDump& d) { d.operations[0].sequence = 0; }),
            "has an operation of a group that it does not have");
}

// Every prefix and every flipped byte is either read or refused.
TEST_F(Files, AnyBytesAreReadOrRefused) {
  const std::string whole = to_text(some_dump());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    (void)parse_flight_dump(whole.substr(0, i));
    std::string flipped = whole;
    flipped[i] = char(flipped[i] ^ (1 << (i % 8)));
    (void)parse_flight_dump(flipped);
  }
}

TEST_F(Files, OtherJobsAndOlderRecordsAreSkipped) {
  ASSERT_TRUE(write_flight_dump(some_dump(0, 1000), folder_).ok());
  FlightDump other = some_dump(1, 900);
  other.job = "yesterday";
  ASSERT_TRUE(write_flight_dump(other, folder_).ok());
  ASSERT_TRUE(write_flight_dump(some_dump(0, 950), folder_ + "/b").ok());
  const auto files = read_flight_folders({folder_, folder_ + "/b"});
  ASSERT_TRUE(files.ok());
  ASSERT_EQ(files->dumps.size(), 1u);
  EXPECT_EQ(files->dumps[0].wall, 1000);
  EXPECT_FALSE(files->damaged);
  EXPECT_THAT(files->problems,
              ElementsAre(folder_ + "/b/flight-rank0.json is an older record of rank 0 and is skipped",
                          folder_ + "/flight-rank1.json is of another job (yesterday, 4 ranks, written ) and is "
                                    "skipped"));
}

TEST_F(Files, TheDefaultFolderIsForThisUserAlone) {
  ::setenv("TMPDIR", folder_.c_str(), 1);
  FlightDump dump = some_dump();
  dump.job = "a/b job";
  const std::string where = default_flight_folder(dump.job);
  EXPECT_THAT(where, testing::MatchesRegex(folder_ + "/tutti-flight-[0-9]+-a_b_job"));
  EXPECT_TRUE(write_flight_dump(dump, where).ok());
  EXPECT_EQ(std::filesystem::status(where).permissions(), std::filesystem::perms::owner_all);
  std::filesystem::permissions(where, std::filesystem::perms::all);
  const auto refused = write_flight_dump(dump, where);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(to_string(refused.error()), HasSubstr("is not a folder of this user alone"));
  std::filesystem::remove_all(where);
  std::filesystem::create_directory(folder_ + "/elsewhere");
  std::filesystem::create_directory_symlink(folder_ + "/elsewhere", where);
  EXPECT_FALSE(write_flight_dump(dump, where).ok());
  // Nor is what others have put there told of, or renamed.
  std::ofstream(folder_ + "/elsewhere/flight-rank0.json") << "{}";
  EXPECT_THAT(ranks_with_flight_files(where, {}), testing::IsEmpty());
  EXPECT_THAT(ranks_with_flight_files(folder_ + "/elsewhere", {}), ElementsAre(0));
  EXPECT_FALSE(is_own_flight_folder(where));
  EXPECT_FALSE(is_own_flight_folder(folder_ + "/none"));
}

}  // namespace
}  // namespace tutti::trace
