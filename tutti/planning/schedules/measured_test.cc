#include "tutti/planning/schedules/measured.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using ::testing::HasSubstr;

TEST(MeasuredPipeline, RoundTripsThroughItsText) {
  for (const int chunks : {1, 2, 30}) {
    MeasuredPipeline measured{.title = "a run", .timeline = {.chunks = chunks}};
    measured.timeline.ranks = {
        {{{ActionKind::kForward, 0, 0}, 0, 0.5}, {{ActionKind::kBackwardInput, 12, chunks - 1}, 0.625, 1}},
        {{{ActionKind::kBackward, 3, 0}, 0.25, 2}, {{ActionKind::kBackwardWeight, 3, 0}, 2, 2}}};
    const auto back = measured_pipeline(to_json(measured));
    ASSERT_TRUE(back.ok()) << to_string(back.error());
    EXPECT_EQ(back->title, "a run");
    EXPECT_EQ(back->timeline.chunks, chunks);
    ASSERT_EQ(back->timeline.ranks.size(), 2u);
    for (std::size_t rank = 0; rank < 2; ++rank)
      for (std::size_t i = 0; i < 2; ++i) {
        const TimedAction &was = measured.timeline.ranks[rank][i], &is = back->timeline.ranks[rank][i];
        EXPECT_EQ(was.action, is.action);
        EXPECT_EQ(was.begin, is.begin);
        EXPECT_EQ(was.end, is.end);
      }
  }
}

TEST(MeasuredPipeline, RejectsInvalidText) {
  const std::pair<const char*, const char*> kTexts[] = {
      {"", "no JSON object"},
      {"[1]", "no JSON object"},
      {R"({"traceEvents": []})", "no JSON object with \"tutti_pipeline\""},
      {R"({"tutti_pipeline": 2})", "format 2, expected 1"},
      {R"({"tutti_pipeline": 1})", "no \"title\""},
      {R"({"tutti_pipeline": 1, "title": "", "chunks": 0, "ranks": []})", "no \"chunks\""},
      {R"({"tutti_pipeline": 1, "title": "", "chunks": 1, "ranks": []})", "no \"ranks\""},
      {R"({"tutti_pipeline": 1, "title": "", "chunks": 1, "ranks": [3]})", "rank 0 has no list"},
      {R"({"tutti_pipeline": 1, "title": "", "chunks": 1, "ranks": [[["F0", 1]]]})", "expected [\"F0\", begin, end]"},
      {R"({"tutti_pipeline": 1, "title": "", "chunks": 1, "ranks": [[["F0a", 1, 2]]]})", "an action \"F0a\""},
      {R"({"tutti_pipeline": 1, "title": "", "chunks": 2, "ranks": [[["F0c", 1, 2]]]})", "such as F0 or B3a"},
      {R"({"tutti_pipeline": 1, "title": "", "chunks": 1, "ranks": [[["F-1", 1, 2]]]})", "an action"},
      {R"({"tutti_pipeline": 1, "title": "", "chunks": 1, "ranks": [[["X1", 1, 2]]]})", "an action"},
      {R"({"tutti_pipeline": 1, "title": "", "chunks": 1, "ranks": [[["F99999999999", 1, 2]]]})", "an action"},
      {R"({"tutti_pipeline": 1, "title": "", "chunks": 1, "ranks": [[["F1", 2, 1]]]})", "end before it begins"},
      {R"({"tutti_pipeline": 1, "title": "", "chunks": 1, "ranks": [[]]})", "no time in it"},
      {R"({"tutti_pipeline": 1, "title": "", "chunks": 1, "ranks": [[["F1", -1e308, 1], ["B1", 1, 1e308]]]})",
       "further apart than a number can say"},
  };
  for (const auto& [text, words] : kTexts) {
    const auto refused = measured_pipeline(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_THAT(to_string(refused.error()), HasSubstr(words)) << text;
  }
}

}  // namespace
}  // namespace tutti
