#include "tutti/launch/output/streams.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace tutti {
namespace {

using ::testing::HasSubstr;

constexpr Streams kNone{}, kOutput{.output = true}, kErrors{.errors = true}, kBoth{.output = true, .errors = true};

TEST(Streams, OfEveryRank) {
  const std::pair<const char*, Streams> cases[] = {{"0", kNone}, {"1", kOutput}, {"2", kErrors}, {"3", kBoth}};
  for (const auto& [text, meant] : cases) {
    const auto streams = parse_streams(text, "--tee");
    ASSERT_TRUE(streams.ok()) << text;
    EXPECT_EQ(streams->of(0), meant);
    EXPECT_EQ(streams->of(17), meant);
    EXPECT_EQ(streams->any(), meant.any());
  }
}

TEST(Streams, ByLocalRank) {
  const auto streams = parse_streams("0:3,11:1,2:0,11:2", "--tee");
  ASSERT_TRUE(streams.ok());
  EXPECT_EQ(streams->of(0), kBoth);
  EXPECT_EQ(streams->of(1), kNone);
  EXPECT_EQ(streams->of(2), kNone);
  EXPECT_EQ(streams->of(11), kErrors) << "of two words about one rank the later counts";
  EXPECT_TRUE(streams->any());
  EXPECT_FALSE(parse_streams("0:0,1:0", "--tee")->any());
}

TEST(Streams, RefuseWhatTheyAreNot) {
  for (const char* wrong : {"", "4", "-1", "01", "both", "0:4", "0:", ":1", "a:1", "-1:1", "0:1,", "0:1;1:2", "0:1:2",
                            "0-3:1", "1,2", "9999999999999:1"}) {
    const auto streams = parse_streams(wrong, "--redirects");
    ASSERT_FALSE(streams.ok()) << wrong;
    EXPECT_EQ(streams.error().code, Code::kUsage);
    EXPECT_THAT(streams.error().detail, HasSubstr("--redirects needs 0 (none), 1 (stdout), 2 (stderr) or 3 (both)"));
    EXPECT_THAT(streams.error().detail, HasSubstr("not '" + std::string(wrong) + "'"));
  }
}

}  // namespace
}  // namespace tutti
