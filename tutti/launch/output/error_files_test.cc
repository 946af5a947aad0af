#include "tutti/launch/output/error_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

namespace tutti::launch {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::SizeIs;
using ::testing::StartsWith;

class ErrorFiles : public ::testing::Test {
 protected:
  ErrorFiles() {
    std::string pattern = ::testing::TempDir() + "tutti_errors_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/error.json";
  }
  ~ErrorFiles() override { std::filesystem::remove_all(folder_); }
  std::string message(const std::string& text) const {
    std::ofstream(path_, std::ios::binary) << text;
    return error_file_message(path_);
  }

  std::string folder_, path_;
};

TEST_F(ErrorFiles, OfTorchelastic) {
  EXPECT_EQ(message(R"({"message": {"message": "ValueError: x", "extraInfo": {}}})"), "ValueError: x");
  EXPECT_EQ(message(R"({"message": "plain", "timestamp": 1})"), "plain");
  EXPECT_EQ(message(R"({"message": {"message": 3}})"), R"({"message":3})");
  EXPECT_EQ(message(R"({"words": 3})"), "");
  EXPECT_EQ(message("not json\n"), "not json");
  EXPECT_EQ(message(""), "");
  unlink(path_.c_str());
  EXPECT_EQ(error_file_message(path_), "");
}

TEST_F(ErrorFiles, WithATracebackBeginWithTheException) {
  const std::string traceback = R"(Traceback (most recent call last):\n  File \"a.py\", line 3, in f\nValueError: x)";
  const std::string expected =
      "ValueError: x\nTraceback (most recent call last):\n  File \"a.py\", line 3, in f\nValueError: x";
  EXPECT_EQ(message(R"({"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": ")" + traceback +
                    R"(", "timestamp": "1"}}})"),
            expected);
  EXPECT_EQ(message(R"({"message": {"message": ")" + traceback + R"("}})"), expected);
}

// torchrun reads message.message, and takes the least message.extraInfo.timestamp for the cause.
TEST_F(ErrorFiles, AreWrittenAsTorchelasticWritesThem) {
  setenv("TORCHELASTIC_ERROR_FILE", path_.c_str(), 1);
  const auto before = std::time(nullptr);
  EXPECT_TRUE(write_error_file("Usage: there is no folder \"a\xff\""));
  EXPECT_EQ(error_file_message(path_), "Usage: there is no folder \"a\xef\xbf\xbd\"");
  const auto json = nlohmann::json::parse(std::ifstream(path_));
  EXPECT_GE(std::stoll(json["message"]["extraInfo"]["timestamp"].get<std::string>()), before);
  EXPECT_TRUE(write_error_file("the second"));
  EXPECT_EQ(error_file_message(path_), "the second");
  unlink(path_.c_str());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_FALSE(write_error_file("nobody reads this"));
  unsetenv("TORCHELASTIC_ERROR_FILE");
  EXPECT_FALSE(write_error_file("there is no file"));
}

TEST_F(ErrorFiles, LongOnesAreCut) {
  EXPECT_THAT(message("{\"message\": \"" + std::string(3000, 'x') + "\"}"),
              AllOf(StartsWith("xxxx"), EndsWith("x ... (2.93 KiB in all)")));
  const std::string huge = message("{\"message\": \"" + std::string(std::size_t(50) << 20, 'x') + "\"}");
  EXPECT_THAT(huge, AllOf(StartsWith("{\"message\": \"xxxx"), EndsWith("x ... (50 MiB in all)"), SizeIs(2020)));
}

TEST_F(ErrorFiles, TakeNoTerminalOver) {
  EXPECT_EQ(message(R"({"message": "red \u001b[31m, a bell \u0007,\r\n\tand a line"})"),
            "red ?[31m, a bell ?,?\n\tand a line");
  EXPECT_EQ(message(R"({"message": "\u009b31m \u202e evil"})"), "?31m ? evil");
  EXPECT_EQ(message("a \xff and \x9b"
                    "31m"),
            "a ? and ?31m");
}

TEST_F(ErrorFiles, ThatNestDeepAreReportedAsText) {
  const auto nested = [](int deep, const std::string& open, const std::string& close) {
    std::string text = R"({"message": )";
    for (int i = 0; i < deep; ++i) text += open;
    text += "1";
    for (int i = 0; i < deep; ++i) text += close;
    return text + "}";
  };
  EXPECT_EQ(message(nested(3, "[", "]")), "[[[1]]]");
  EXPECT_THAT(message(nested(200'000, "[", "]")), AllOf(StartsWith(R"({"message": [[[[)"), EndsWith(" in all)")));
  EXPECT_THAT(message(nested(100'000, "{\"a\":", "}")), StartsWith(R"({"message": {"a":{"a":)"));
  EXPECT_THAT(message(R"({"message": "x", "more": )" + nested(1000, "[", "]") + "}"), StartsWith(R"({"message": "x")"));
}

// Reading one of these would never end.
TEST_F(ErrorFiles, WhatIsNoFileIsNotRead) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_EQ(error_file_message(path_), "");
  unlink(path_.c_str());
  ASSERT_EQ(symlink("/dev/zero", path_.c_str()), 0);
  EXPECT_EQ(error_file_message(path_), "");
  unlink(path_.c_str());
  ASSERT_EQ(mkdir(path_.c_str(), 0700), 0);
  EXPECT_EQ(error_file_message(path_), "");
}

TEST_F(ErrorFiles, ThoseOfDeadLaunchersAreSwept) {
  const pid_t dead = fork();
  if (dead == 0) _exit(0);
  waitpid(dead, nullptr, 0);
  setenv("XDG_RUNTIME_DIR", folder_.c_str(), 1);
  std::filesystem::permissions(folder_, std::filesystem::perms::owner_all);
  const std::string ours = error_files_prefix();
  ASSERT_THAT(ours, StartsWith(folder_));
  const std::string theirs = ours.substr(0, ours.size() - std::to_string(getpid()).size() - 1) + std::to_string(dead);
  std::ofstream(ours + "rank_0.json") << "x";
  std::ofstream(theirs + ".rank_0.json") << "x";
  std::filesystem::create_directories(theirs + ".rank_1.json");
  EXPECT_EQ(error_files_prefix(), ours);
  EXPECT_TRUE(std::filesystem::exists(ours + "rank_0.json"));
  EXPECT_FALSE(std::filesystem::exists(theirs + ".rank_0.json"));
  EXPECT_FALSE(std::filesystem::exists(theirs + ".rank_1.json"));
  std::filesystem::create_directories(ours + "rank_1.json");
  remove_error_files(ours);
  EXPECT_FALSE(std::filesystem::exists(ours + "rank_0.json"));
  EXPECT_FALSE(std::filesystem::exists(ours + "rank_1.json"));
}

}  // namespace
}  // namespace tutti::launch
