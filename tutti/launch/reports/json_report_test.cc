#include "tutti/launch/reports/json_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tutti/base/file.h"

namespace tutti::launch {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

TEST(JobReport, OfAJobThatEndedWell) {
  EXPECT_EQ(json::parse(job_report({.job = "j", .attempt = 1, .restarts = 1})),
            json::parse(R"({"job": "j", "outcome": "succeeded", "code": 0, "restarts": 1, "attempt": 1})"));
  EXPECT_EQ(json::parse(job_report({.job = "j", .attempt = 0, .code = 75}))["outcome"], "saved");
}

TEST(JobReport, HasWhatTheNodeOfTheCulpritKnows) {
  const Failure failure{.culprit = {.rank = 2, .pid = 812, .exit = {.code = 7}}, .node = 1, .host = "b", .job = "j"};
  const json whole = json::parse(job_report({.job = "j",
                                             .attempt = 0,
                                             .code = 93,
                                             .failure = "rank 2 died",
                                             .rank = 2,
                                             .details = failure_json(failure, {failure.culprit})}));
  EXPECT_EQ(whole["outcome"], "failed");
  EXPECT_EQ(whole["code"], 93);
  EXPECT_EQ(whole["exit_code"], 7);
  EXPECT_EQ(whole["node"], 1);
  EXPECT_EQ(whole["host"], "b");
  EXPECT_EQ(whole["failure"], "rank 2 (pid 812 on b) exited with code 7");
  EXPECT_EQ(whole["ranks"][0]["role"], "culprit");
}

TEST(JobReport, WithoutThatItHasWhatIsKnownHere) {
  for (const std::string& details : {std::string(), std::string("{"), std::string("[1]"), std::string(100000, '[')}) {
    const json short_one = json::parse(
        job_report({.job = "j", .attempt = 0, .code = 4, .failure = "node 1 (b) is lost \xff", .details = details}));
    EXPECT_EQ(short_one["code"], 4);
    EXPECT_EQ(short_one["failure"], "node 1 (b) is lost \ufffd");
    EXPECT_FALSE(short_one.contains("rank"));
  }
}

namespace fs = std::filesystem;

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

TEST_F(ReportFile, APipeInThePlaceOfTheFileBlocksNoWriter) {
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  ASSERT_TRUE(write_report_file(path_, "text").ok());
  EXPECT_EQ(*read_file(path_, 100), "text");
  ASSERT_EQ(::mkfifo((folder_ + "/pipe").c_str(), 0600), 0);
  fs::create_symlink("pipe", folder_ + "/link");
  EXPECT_THAT(to_string(write_report_file(folder_ + "/link", "text").error()), HasSubstr("cannot write the report to"));
}

}  // namespace
}  // namespace tutti::launch
