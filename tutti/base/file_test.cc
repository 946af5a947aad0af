#include "tutti/base/file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tutti/base/fd.h"
#include "tutti/base/file.h"

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

TEST_F(File, TextRoundTrips) {
  ASSERT_TRUE(write_file(path_, "something longer").ok());
  ASSERT_TRUE(write_file(path_, "short").ok());
  EXPECT_EQ(*read_file(path_, 5), "short");
  EXPECT_TRUE(sync_folder(folder_).ok());
}

TEST_F(File, ReadErrorsNameTheFile) {
  ASSERT_TRUE(write_file(path_, "12345").ok());
  EXPECT_THAT(to_string(read_file(path_, 4).error()), HasSubstr("/file has 5 B; at most 4 B are read"));
  EXPECT_THAT(to_string(read_file(folder_, 4).error()), HasSubstr("is not a regular file"));
  EXPECT_THAT(to_string(read_file(folder_ / "none", 4).error()), HasSubstr("/none: No such file or directory"));
  EXPECT_THAT(to_string(sync_folder(folder_ / "none").error()), HasSubstr("cannot flush the folder"));
}

TEST_F(File, WriteErrorsNameTheFile) {
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

TEST_F(NewFile, ReplacesAnOldFile) {
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

TEST_F(NewFile, DoesNotWaitForAPipesReader) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  ASSERT_TRUE(write_new_file(path_, "text").ok());
  expect_only("text");
}

TEST_F(NewFile, WriteErrorsNameTheFile) {
  fs::create_directory(path_);
  EXPECT_THAT(to_string(write_new_file(path_, "").error()), HasSubstr("cannot write " + path_));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), {}), 1) << "something is left beside it";
  EXPECT_THAT(to_string(write_new_file(folder_ / "none" / "file", "").error()), HasSubstr("cannot create"));
}

}  // namespace

namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class MakeFolder : public testing::Test {
 protected:
  MakeFolder() { fs::create_directories(root_); }
  ~MakeFolder() override { fs::remove_all(root_); }
  std::string path(const std::string& name) const { return root_ + "/" + name; }
  static std::string told(const std::string& folder) {
    const Status made = make_folder(folder);
    return made.ok() ? "made" : to_string(made.error());
  }
  const std::string root_ = fs::temp_directory_path() / ("tutti_make_folder_" + std::to_string(::getpid()));
};

TEST_F(MakeFolder, CreatesParentsAndMayBeRepeated) {
  for (const std::string name : {"a/b/c", "a/b/c", "a/b/c/", "a/./d", "a/e//f"}) {
    EXPECT_EQ(told(path(name)), "made") << name;
    EXPECT_TRUE(fs::is_directory(path(name))) << name;
  }
  fs::create_directory_symlink(path("a/b"), path("link"));
  EXPECT_EQ(told(path("link")), "made");
  EXPECT_EQ(told(path("link/below")), "made");
  EXPECT_TRUE(fs::is_directory(path("a/b/below")));
}

TEST_F(MakeFolder, NamesADanglingLinkAndItsTarget) {
  fs::create_directory_symlink(path("gone"), path("link"));
  for (const std::string& folder : {path("link"), path("link/below")})
    EXPECT_EQ(told(folder), "InvalidArgument: cannot make the folder " + folder + ": " + path("link") +
                                " is a link to " + path("gone") + ", which is not there (hint: make " + path("gone") +
                                ", give another folder, or remove the link)");
  fs::create_directory(path("sub"));
  fs::create_directory_symlink("../gone", path("sub/relative"));
  EXPECT_THAT(told(path("sub/relative")),
              HasSubstr(path("sub/relative") + " is a link to " + path("gone") + ", which"));
  fs::create_directory_symlink("link", path("first"));
  EXPECT_THAT(told(path("first")), HasSubstr(path("first") + " is a link to " + path("gone") + ", which is not there"));
  fs::create_directory_symlink("round", path("round"));
  EXPECT_THAT(told(path("round")), HasSubstr(path("round") + " is a link to "));
}

TEST_F(MakeFolder, NamesAFileInTheWay) {
  std::ofstream(path("file")) << "x";
  for (const std::string& folder : {path("file"), path("file/below/it")})
    EXPECT_THAT(told(folder), HasSubstr("cannot make the folder " + folder + ": " + path("file") +
                                        " is there, and is no folder (hint: "));
  fs::create_symlink("file", path("to_file"));
  EXPECT_THAT(told(path("to_file")), HasSubstr(" is a link to " + path("file") + ", which is no folder"));
}

TEST_F(MakeFolder, ReportsOtherErrorsOfTheSystem) {
  EXPECT_THAT(told("/proc/none/below"), HasSubstr("System: cannot make the folder /proc/none/below: No such file"));
  EXPECT_THAT(told(path(std::string(300, 'x'))), HasSubstr("File name too long"));
  EXPECT_THAT(told(""), HasSubstr("cannot make the folder"));
}

}  // namespace

}  // namespace tutti
