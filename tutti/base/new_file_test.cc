#include "tutti/base/new_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "tutti/base/file.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class NewFile : public testing::Test {
 protected:
  NewFile() { fs::create_directories(folder_); }
  ~NewFile() override { fs::remove_all(folder_); }
  void expect_only(const std::string& text) const {
    EXPECT_TRUE(fs::is_regular_file(fs::symlink_status(path_)));
    EXPECT_EQ(*read_file(path_, 100), text);
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "something is left beside it";
  }
  const fs::path folder_ = fs::temp_directory_path() / ("tutti_new_file_" + std::to_string(::getpid()));
  const std::string path_ = folder_ / "file";
};

TEST_F(NewFile, TakesThePlaceOfAnOldOne) {
  ASSERT_TRUE(write_new_file(path_, "something longer").ok());
  ASSERT_TRUE(write_new_file(path_, "short").ok());
  expect_only("short");
}

TEST_F(NewFile, FollowsNoLink) {
  const std::string victim = folder_.string() + "_victim";
  ASSERT_TRUE(write_file(victim, "precious").ok());
  fs::create_symlink(victim, path_);
  ASSERT_TRUE(write_new_file(path_, "text").ok());
  EXPECT_EQ(*read_file(victim, 100), "precious");
  fs::remove(victim);
  expect_only("text");
}

TEST_F(NewFile, DoesNotWaitForTheReaderOfAPipe) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  ASSERT_TRUE(write_new_file(path_, "text").ok());
  expect_only("text");
}

TEST_F(NewFile, WhatCannotBeWrittenIsToldByName) {
  fs::create_directory(path_);
  EXPECT_THAT(to_string(write_new_file(path_, "").error()), HasSubstr("cannot write " + path_));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "something is left beside it";
  EXPECT_THAT(to_string(write_new_file(folder_ / "none" / "file", "").error()), HasSubstr("cannot create"));
}

}  // namespace
}  // namespace tutti
