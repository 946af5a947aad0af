#include "tutti/runtime/introduction.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace tutti::runtime {
namespace {

using nlohmann::json;
using testing::HasSubstr;

const RankIntroduction kIntroduction{.boot = "b",
                                     .host = "\xff no text",
                                     .sharing = "h",
                                     .agent = "1",
                                     .shm = "/tmp/x/rank",
                                     .cores = {7, 1},
                                     .transport = "tcp",
                                     .engines = "cpu:tutti,cuda:staged",
                                     .algorithm = "ring",
                                     .streams = 3};

std::string refusal(const std::string& bytes) {
  const auto note = parse_introduction(bytes);
  return note.ok() ? "" : to_string(note.error());
}
std::string with(const char* key, const json& value) {
  json note = {{"boot", "b"},  {"host", "h"},         {"sharing", "h"}, {"agent", ""},     {"shm", ""},
               {"cores", {1}}, {"transport", "auto"}, {"engines", ""},  {"algorithm", ""}, {"streams", 1}};
  note[key] = value;
  std::string bytes;
  json::to_cbor(note, bytes);
  return bytes;
}

TEST(RankIntroduction, AnyBytesArriveAsTheyAre) {
  const auto note = parse_introduction(encode(kIntroduction));
  ASSERT_TRUE(note.ok());
  EXPECT_EQ(*note, kIntroduction);
}

TEST(RankIntroduction, WhatIsNotUnderstoodIsRefused) {
  EXPECT_EQ(refusal(with("streams", 2)), "");
  for (const std::string& bytes :
       {std::string(), std::string("x"), encode(kIntroduction) + "x", encode(kIntroduction).substr(0, 20),
        with("streams", "\xff"), with("streams", -1), with("streams", 1.5), with("streams", std::uint64_t(1) << 40),
        with("cores", "1"), with("cores", json::array({json::array({1})})), with("boot", 3), with("more", "x"),
        with("host", nullptr), with("algorithm", 1)})
    EXPECT_EQ(refusal(bytes),
              "Mismatch: sent an introduction that this version does not understand (hint: do all ranks run the same "
              "version of tutti?)");
}

TEST(RankIntroduction, OneOfManyListsDoesNotUseUpTheStack) {
  EXPECT_THAT(refusal(std::string(RankIntroduction::kMostBytes, char(0x81))), HasSubstr("does not understand"));
  EXPECT_THAT(refusal(std::string(8 << 20, char(0x81))), HasSubstr("does not understand"));
}

}  // namespace
}  // namespace tutti::runtime
