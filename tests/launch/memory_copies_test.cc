// Jobs that are started again, and go on from the copy in memory that their agent kept.
#include <gmock/gmock.h>

#include "tests/launch/running.h"

namespace tutti::testing {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Arguments = std::vector<std::string>;

Ended train(const Arguments& options, const Arguments& words) {
  Arguments line = {"run", "-n", "3"};
  line.insert(line.end(), options.begin(), options.end());
  line.push_back(TUTTI_TEST_TRAINING);
  line.insert(line.end(), words.begin(), words.end());
  return run(line);
}
std::string digest_of(const Ended& ended) {
  const auto at = ended.out.find("ended with ");
  return at == std::string::npos ? "none: " + ended.err : ended.out.substr(at);
}

TEST(MemoryCopies, ARankThatIsKilledCostsNoBitsAndNoDisk) {
  const Ended undisturbed = train({}, {"steps=40"});
  ASSERT_EQ(undisturbed.code, 0) << undisturbed.err;
  for (const char* rank : {"0", "2"}) {
    const Ended ended = train({"--max-restarts", "1"}, {"steps=40", "copies=5", std::string("die=23:") + rank});
    EXPECT_EQ(ended.code, 0) << ended.err;
    // The copy of step 15 was whole before that of step 20 was begun.
    EXPECT_THAT(ended.err, AnyOf(HasSubstr("resuming after step 20 from the copy in memory of step 20"),
                                 HasSubstr("resuming after step 15 from the copy in memory of step 15")));
    EXPECT_EQ(digest_of(ended), digest_of(undisturbed));
  }
}

TEST(MemoryCopies, TheNewerOfDiskAndMemoryCounts) {
  const Ended undisturbed = train({}, {"steps=40"});
  for (const bool disk_is_newer : {false, true}) {
    const Folder folder;
    const Arguments intervals = disk_is_newer ? Arguments{"interval=10", "copies=15", "die=36:1"}
                                              : Arguments{"interval=30", "copies=5", "die=26:1"};
    Arguments words = {"steps=40", "folder=" + folder.path() + "/run"};
    words.insert(words.end(), intervals.begin(), intervals.end());
    const Ended ended = train({"--max-restarts", "1"}, words);
    EXPECT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(digest_of(ended), digest_of(undisturbed));
    if (disk_is_newer) {
      EXPECT_THAT(ended.err, AnyOf(HasSubstr("resuming after step 30 from " + folder.path()),
                                   HasSubstr("from the copy in memory of step 30")));
    } else {
      EXPECT_THAT(ended.err, AnyOf(HasSubstr("from the copy in memory of step 25"),
                                   HasSubstr("from the copy in memory of step 20")));
    }
  }
}

// Killed once more before there is a new copy, it goes on from the same one again.
TEST(MemoryCopies, AJobThatIsKilledTwiceCostsNoBits) {
  const Ended undisturbed = train({}, {"steps=40"});
  const Ended ended = train({"--max-restarts", "2"}, {"steps=40", "copies=10", "die=24:1,27:0"});
  EXPECT_EQ(ended.code, 0) << ended.err;
  const auto first = ended.err.find("from the copy in memory of step ");
  ASSERT_NE(first, std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find("from the copy in memory of step ", first + 1), std::string::npos) << ended.err;
  EXPECT_EQ(digest_of(ended), digest_of(undisturbed));
}

TEST(MemoryCopies, WithoutAnAgentTheyAreRefused) {
  const Ended ended =
      run({"run", "-n", "2", "env", "-u", "TUTTI_KEPT_MEMORY_FD", TUTTI_TEST_TRAINING, "steps=4", "copies=1"});
  EXPECT_EQ(ended.code, 2) << ended.err;
  EXPECT_THAT(ended.err, HasSubstr("copies of the state in memory are kept by the agent of tutti run"));
}

TEST(MemoryCopies, WithoutRestartsAreReportedAsUnused) {
  EXPECT_THAT(train({}, {"steps=2", "copies=1"}).err,
              HasSubstr("copies in memory have no effect: --max-restarts of tutti run is 0"));
  EXPECT_THAT(train({"--max-restarts", "1"}, {"steps=2", "copies=1"}).err,
              Not(HasSubstr("copies in memory have no effect")));
}

}  // namespace
}  // namespace tutti::testing
