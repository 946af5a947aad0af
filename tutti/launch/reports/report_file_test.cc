#include "tutti/launch/reports/report_file.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "tutti/base/file.h"

namespace tutti {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class ReportFile : public testing::Test {
 protected:
  ReportFile() {
    folder_ = testing::TempDir() + "tutti_report_XXXXXX";
    if (!mkdtemp(folder_.data())) std::abort();
    path_ = folder_ + "/report.json";
  }
  ~ReportFile() override { fs::remove_all(folder_); }
  std::string folder_, path_;
};

TEST_F(ReportFile, TakesThePlaceOfAnOldOne) {
  ASSERT_TRUE(write_report_file(path_, "something longer").ok());
  ASSERT_TRUE(write_report_file(path_, "short").ok());
  EXPECT_EQ(*read_file(path_, 100), "short");
}

TEST_F(ReportFile, GoesWhereTheUsersLinkLeads) {
  ASSERT_TRUE(write_file(folder_ + "/elsewhere", "something longer").ok());
  fs::create_symlink("elsewhere", path_);
  ASSERT_TRUE(write_report_file(path_, "short").ok());
  EXPECT_TRUE(fs::is_symlink(path_));
  EXPECT_EQ(*read_file(folder_ + "/elsewhere", 100), "short");
}

TEST_F(ReportFile, OnlyAFileIsRemovedBefore) {
  ASSERT_TRUE(write_file(path_, "old").ok());
  fs::create_symlink("report.json", folder_ + "/link");
  remove_old_report(folder_ + "/link");
  remove_old_report("/dev/null");
  EXPECT_TRUE(fs::exists(path_));
  remove_old_report(path_);
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_TRUE(fs::is_symlink(folder_ + "/link"));
  EXPECT_TRUE(fs::exists("/dev/null"));
}

TEST_F(ReportFile, ADeviceStaysOne) {
  EXPECT_TRUE(write_report_file("/dev/null", "text").ok());
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(ReportFile, APipeThatCameMeanwhileKeepsNobodyWaiting) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  ASSERT_TRUE(write_report_file(path_, "text").ok());
  EXPECT_EQ(*read_file(path_, 100), "text");
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", folder_ + "/link");
  EXPECT_THAT(to_string(write_report_file(folder_ + "/link", "text").error()), HasSubstr("cannot write the report to"));
}

}  // namespace
}  // namespace tutti
