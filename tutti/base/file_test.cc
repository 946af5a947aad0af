#include "tutti/base/file.h"

#include <gmock/gmock.h>
#include <unistd.h>

#include <filesystem>

#include "tutti/base/fd.h"

namespace tutti {
namespace {

using testing::HasSubstr;

class File : public testing::Test {
 protected:
  File() { std::filesystem::create_directories(folder_); }
  ~File() override { std::filesystem::remove_all(folder_); }
  const std::filesystem::path folder_ =
      std::filesystem::temp_directory_path() / ("tutti_file_" + std::to_string(::getpid()));
  const std::string path_ = folder_ / "file";
};

TEST_F(File, TextComesBack) {
  ASSERT_TRUE(write_file(path_, "something longer").ok());
  ASSERT_TRUE(write_file(path_, "short").ok());
  EXPECT_EQ(*read_file(path_, 5), "short");
  EXPECT_TRUE(sync_folder(folder_).ok());
}

TEST_F(File, WhatCannotBeReadIsToldByName) {
  ASSERT_TRUE(write_file(path_, "12345").ok());
  EXPECT_THAT(to_string(read_file(path_, 4).error()), HasSubstr("/file has 5 B; at most 4 B are read"));
  EXPECT_THAT(to_string(read_file(folder_, 4).error()), HasSubstr("is not a regular file"));
  EXPECT_THAT(to_string(read_file(folder_ / "none", 4).error()), HasSubstr("/none: No such file or directory"));
  EXPECT_THAT(to_string(sync_folder(folder_ / "none").error()), HasSubstr("cannot flush the folder"));
}

TEST_F(File, WhatCannotBeWrittenIsToldByName) {
  EXPECT_THAT(to_string(write_file(folder_ / "none" / "file", "").error()), HasSubstr("cannot write"));
  EXPECT_THAT(to_string(write_file("/dev/full", "x").error()),
              HasSubstr("cannot write /dev/full: No space left on device"));
}

TEST_F(File, AnEarlyEndIsCorrupt) {
  std::FILE* file = std::tmpfile();
  std::fputs("abc", file);
  std::fflush(file);
  char into[5];
  const Status read = read_all(::fileno(file), 1, std::as_writable_bytes(std::span(into)), "the file");
  std::fclose(file);
  EXPECT_EQ(read.error().code, Code::kCorrupt);
  EXPECT_THAT(to_string(read.error()), HasSubstr("the file ends at byte 3, 3 bytes before it should"));
}

}  // namespace
}  // namespace tutti
