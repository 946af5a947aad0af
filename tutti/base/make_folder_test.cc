#include "tutti/base/make_folder.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace tutti {
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

TEST_F(MakeFolder, WithThoseAboveItOnceAndAgain) {
  for (const std::string name : {"a/b/c", "a/b/c", "a/b/c/", "a/./d", "a/e//f"}) {
    EXPECT_EQ(told(path(name)), "made") << name;
    EXPECT_TRUE(fs::is_directory(path(name))) << name;
  }
  fs::create_directory_symlink(path("a/b"), path("link"));
  EXPECT_EQ(told(path("link")), "made");
  EXPECT_EQ(told(path("link/below")), "made");
  EXPECT_TRUE(fs::is_directory(path("a/b/below")));
}

TEST_F(MakeFolder, ALinkThatLeadsNowhereIsNamedWithWhereItLeads) {
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

TEST_F(MakeFolder, AFileInTheWayIsNamed) {
  std::ofstream(path("file")) << "x";
  for (const std::string& folder : {path("file"), path("file/below/it")})
    EXPECT_THAT(told(folder), HasSubstr("cannot make the folder " + folder + ": " + path("file") +
                                        " is there, and is no folder (hint: "));
  fs::create_symlink("file", path("to_file"));
  EXPECT_THAT(told(path("to_file")), HasSubstr(" is a link to " + path("file") + ", which is no folder"));
}

TEST_F(MakeFolder, WhatTheSystemRefusesItSays) {
  EXPECT_THAT(told("/proc/none/below"), HasSubstr("System: cannot make the folder /proc/none/below: No such file"));
  EXPECT_THAT(told(path(std::string(300, 'x'))), HasSubstr("File name too long"));
  EXPECT_THAT(told(""), HasSubstr("cannot make the folder"));
}

}  // namespace
}  // namespace tutti
