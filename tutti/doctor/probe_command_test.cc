#include "tutti/doctor/probe_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace tutti {
namespace {

using ::testing::HasSubstr;
using enum ProbeCommand::Kind;

constexpr std::uint64_t kMost = ProbeCommand::kMostTransfer, kLargest = std::numeric_limits<std::uint64_t>::max();

TEST(ProbeCommands, ArriveAsTheyWereSent) {
  for (const ProbeCommand command :
       {ProbeCommand{kClock, 0}, ProbeCommand{kClock, kLargest}, ProbeCommand{kTake, 0}, ProbeCommand{kTake, kMost},
        ProbeCommand{kGive, kMost}, ProbeCommand{kDatagrams, kLargest}, ProbeCommand{kGoodbye, 7}}) {
    const auto parsed = parse_probe_command(encode(command));
    ASSERT_TRUE(parsed.ok()) << to_string(parsed.error());
    EXPECT_EQ(*parsed, command);
  }
}

TEST(ProbeCommands, NoTransferIsLargerThanAMeasurementAsksFor) {
  for (const auto kind : {kTake, kGive}) {
    for (const std::uint64_t bytes : {kMost + 1, kLargest}) {
      const auto parsed = parse_probe_command(encode({kind, bytes}));
      ASSERT_FALSE(parsed.ok());
      EXPECT_EQ(parsed.error().code, Code::kLimit);
      EXPECT_EQ(parsed.error().detail, "the other side asks for a transfer of " + std::to_string(bytes) +
                                           " bytes; a measurement asks for 1073741824 at most");
    }
  }
}

TEST(ProbeCommands, ALetterThatMeansNothingIsNone) {
  for (int letter = 0; letter < 256; ++letter) {
    auto bytes = encode(ProbeCommand{});
    bytes[0] = std::byte(letter);
    const bool known = letter == 'P' || letter == 'S' || letter == 'R' || letter == 'U' || letter == 'Q';
    const auto parsed = parse_probe_command(bytes);
    ASSERT_EQ(parsed.ok(), known) << letter;
    if (known) continue;
    EXPECT_EQ(parsed.error().code, Code::kCorrupt);
    EXPECT_THAT(parsed.error().detail, HasSubstr("begins with byte " + std::to_string(letter)));
  }
}

}  // namespace
}  // namespace tutti
