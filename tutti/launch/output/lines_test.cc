#include "tutti/launch/output/lines.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace tutti::launch {
namespace {

TEST(LineLevel, IsWhatALogSaysOfItself) {
  const auto expect = [](const char* line, std::optional<LineLevel> level) {
    EXPECT_EQ(level_of_line(line), level) << line;
  };
  expect("WARNING:root:slow", LineLevel::kWarn);
  expect("2026-11-21 12:00:00,123 - train - ERROR - NaN", LineLevel::kError);
  expect("[2026-11-21 12:00:00.123] [debug] x", LineLevel::kDebug);
  expect("[W1121 12:00] not glog", std::nullopt);
  expect("W1121 12:00:00.000001 12 a.cc:3] slow", LineLevel::kWarn);
  expect("E1121 12:00:00.000001 12 a.cc:3] INFO inside", LineLevel::kError);
  expect("INFO the ERROR rate fell", LineLevel::kInfo);
  expect("error: no such file", LineLevel::kError);
  expect("the error is small", std::nullopt);
  expect("INFORMATION", std::nullopt);
  expect("step 3 loss 0.1", std::nullopt);
  expect("", std::nullopt);
}

TEST(LineLevel, IsReadByName) {
  EXPECT_EQ(*parse_line_level("warn", "--level"), LineLevel::kWarn);
  EXPECT_EQ(parse_line_level("loud", "--level").error().detail, "--level needs debug, info, warn or error, not 'loud'");
}

TEST(JsonLine, HasWhatIsKnown) {
  const auto rank = nlohmann::json::parse(
      json_line({.line = "loss \"\xff\"", .rank = 3, .stream = "stderr", .level = LineLevel::kWarn}, "a", 2, 1500000));
  EXPECT_EQ(rank["time"], "1970-01-01T00:00:01.500000Z");
  EXPECT_EQ(rank["rank"], 3);
  EXPECT_EQ(rank["stream"], "stderr");
  EXPECT_EQ(rank["level"], "warn");
  EXPECT_EQ(rank["attempt"], 2);
  EXPECT_EQ(rank["host"], "a");
  EXPECT_EQ(rank["line"], "loss \"\xef\xbf\xbd\"");
  const auto agent = nlohmann::json::parse(json_line({.line = "x"}, "a", 0, 0));
  EXPECT_EQ(agent["from"], "tutti");
  EXPECT_FALSE(agent.contains("rank"));
  EXPECT_FALSE(agent.contains("attempt"));
  EXPECT_FALSE(agent.contains("level"));
}

}  // namespace
}  // namespace tutti::launch
