#include "tutti/launch/output/run_folder.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>
#include <vector>

namespace tutti::launch {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class RunFolders : public ::testing::Test {
 protected:
  RunFolders() {
    path_ = ::testing::TempDir() + "tutti_runs_XXXXXX";
    if (!mkdtemp(path_.data())) std::abort();
  }
  ~RunFolders() override { fs::remove_all(path_); }

  Result<RunFolder> claim(const std::string& run) { return RunFolder::claim(path_, "j", run); }
  void leave_log() {
    fs::create_directories(path_ + "/j/attempt_0");
    std::ofstream(path_ + "/j/attempt_0/log") << "of an earlier run";
  }
  bool has_log() { return fs::exists(path_ + "/j/attempt_0/log"); }

  std::string path_;
};

TEST_F(RunFolders, TheAgentsOfOneRunShareIt) {
  const auto first = claim("a1");
  ASSERT_TRUE(first.ok()) << to_string(first.error());
  leave_log();
  const auto second = claim("a1");
  ASSERT_TRUE(second.ok());
  EXPECT_EQ(second->moved_to(), "");
  EXPECT_TRUE(has_log());
}

TEST_F(RunFolders, WhatADeadRunLeftIsMovedAway) {
  ASSERT_TRUE(claim("a1").ok());
  leave_log();
  const auto later = claim("b2");
  ASSERT_TRUE(later.ok()) << to_string(later.error());
  EXPECT_THAT(later->moved_to(), StartsWith(path_ + "/j.20"));
  EXPECT_TRUE(fs::exists(later->moved_to() + "/attempt_0/log"));
  EXPECT_FALSE(has_log());
}

TEST_F(RunFolders, TwoOfOneSecondGetTwoNames) {
  std::string places[2];
  for (std::string& place : places) {
    leave_log();
    place = claim("a" + std::to_string(&place - places))->moved_to();
  }
  EXPECT_NE(places[0], places[1]);
  EXPECT_TRUE(fs::exists(places[0] + "/attempt_0/log"));
  EXPECT_TRUE(fs::exists(places[1] + "/attempt_0/log"));
}

TEST_F(RunFolders, ALivingRunIsNotDisturbed) {
  const auto first = claim("a1");
  leave_log();
  const auto second = claim("b2");
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kUsage);
  EXPECT_THAT(second.error().detail,
              AllOf(HasSubstr("another job of the name j is running and has its logs in " + path_ + "/j (pid "),
                    HasSubstr(" on ")));
  EXPECT_TRUE(has_log());
}

TEST_F(RunFolders, ALaterNodeJoinsTheRunInTheFolder) {
  {
    const auto first = claim("a1");
    leave_log();
    const auto newcomer = claim("");
    ASSERT_TRUE(newcomer.ok());
    EXPECT_TRUE(has_log());
  }
  const auto alone = claim("");  // on a disk of its own: what is there is old
  ASSERT_TRUE(alone.ok());
  EXPECT_FALSE(has_log());
}

TEST_F(RunFolders, ManyAtOnceMoveItOnce) {
  leave_log();
  std::vector<std::optional<Result<RunFolder>>> claims(8);
  std::vector<std::thread> agents;
  for (auto& mine : claims) agents.emplace_back([&] { mine = claim("c3"); });
  for (std::thread& agent : agents) agent.join();
  int moved = 0;
  for (const auto& mine : claims) {
    ASSERT_TRUE(mine->ok()) << to_string(mine->error());
    moved += !(*mine)->moved_to().empty();
  }
  EXPECT_EQ(moved, 1);
  EXPECT_FALSE(has_log());
}

TEST_F(RunFolders, AFolderThatCannotBeMadeIsNamed) {
  std::ofstream(path_ + "/file") << "";
  const auto refused = RunFolder::claim(path_ + "/file", "j", "a1");
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(to_string(refused.error()), "Usage: --log-dir: cannot make the folder " + path_ + "/file/j: " + path_ +
                                            "/file is there, and is no folder (hint: give another folder, or move what "
                                            "is there away)");
  const auto nowhere = RunFolder::claim("/proc/nowhere", "j", "a1");
  ASSERT_FALSE(nowhere.ok());
  EXPECT_EQ(to_string(nowhere.error()),
            "Usage: --log-dir: cannot make the folder /proc/nowhere/j: No such file or directory (hint: give a folder "
            "that is there, or in a place where this user may make one)");
  std::filesystem::create_directories(path_ + "/j/.claim");  // a folder in the way
  const auto locked = RunFolder::claim(path_, "j", "a1");
  ASSERT_FALSE(locked.ok());
  EXPECT_EQ(to_string(locked.error()),
            "Usage: --log-dir: cannot write " + path_ + "/j/.claim: Is a directory (hint: choose another --log-dir)");
}

}  // namespace
}  // namespace tutti::launch
