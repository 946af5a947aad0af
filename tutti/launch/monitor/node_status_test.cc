#include "tutti/launch/monitor/node_status.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti::launch {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

NodeStatus node(int number, int ranks) {
  NodeStatus status{.job = "j",
                    .node = number,
                    .nodes = 2,
                    .world_size = 4,
                    .host = number ? "bb" : "a",
                    .restarts = 1,
                    .seconds = 90};
  for (int i = 0; i < ranks; ++i) {
    status.ranks.push_back({.rank = number * 2 + i,
                            .pid = 100 + i,
                            .state = "runs",
                            .step = 12,
                            .steps_a_second = 9.5,
                            .waits = 0.93,
                            .doing = "all_reduce #42 (f32[4], sum) on group world",
                            .seconds = 0.002,
                            .since_progress = 0.25,
                            .resident = 1 << 20});
  }
  return status;
}

TEST(NodeStatus, SurvivesItsJourney) {
  NodeStatus status = node(1, 2);
  status.ranks[0].alarm = "1 of 3 checkpoints was not saved";
  const auto back = parse_node_status(encode(status));
  ASSERT_TRUE(back.ok()) << to_string(back.error());
  EXPECT_EQ(*back, status);
  const auto all = parse_answer(encode_answer({encode(node(0, 2)), encode(status)}));
  ASSERT_TRUE(all.ok());
  ASSERT_EQ(all->size(), 2u);
  EXPECT_EQ((*all)[1], status);
}

TEST(NodeStatus, ThatIsNoneIsRefused) {
  for (const char* text : {"", "{", "[]", "{\"job\":1}", "{\"nodes\":3}"}) {
    EXPECT_FALSE(parse_node_status(text).ok()) << text;
    EXPECT_FALSE(parse_answer(text).ok()) << text;
  }
  EXPECT_EQ(to_string(parse_answer("x").error()),
            "Corrupt: the status of an agent cannot be parsed (hint: does it run another release of tutti (tutti "
            "--version)?)");
}

TEST(Table, HasALineForEachRank) {
  const std::string text = status_table({node(1, 2), node(0, 2)}, 0, 0);
  EXPECT_THAT(text,
              AllOf(HasSubstr("job j: 4 ranks on 2 nodes, up 90 s, 1 restart\n"),
                    HasSubstr("RANK  HOST  PID  STATE  STEP  STEP/S  WAITS  PROGRESS"),
                    HasSubstr("   0  a     100  runs     12    9.50   93 %    250 ms   1 MiB  2 ms  all_reduce #42"),
                    HasSubstr("\n   3  bb    101")));
}

TEST(Table, ShowsARateThatIsZeroAndNoneThatIsNotKnown) {
  NodeStatus status = node(0, 2);
  status.ranks[0].steps_a_second = 0;
  status.ranks[1].steps_a_second = -1;
  EXPECT_THAT(status_table({status}, 0, 0), AllOf(HasSubstr("12    0.00   93 %"), HasSubstr("12           93 %")));
}

TEST(Table, ShowsTheAlarmsOfRanks) {
  NodeStatus status = node(0, 2);
  status.ranks[1].alarm = "1 of 3 checkpoints was not saved, the last that of step 40: No space left on device";
  EXPECT_THAT(
      status_table({status}, 0, 0),
      HasSubstr("1 restart\nrank 1: 1 of 3 checkpoints was not saved, the last that of step 40: No space left on "
                "device\nRANK"));
  EXPECT_THAT(status_table({status}, 0, 30), HasSubstr("\nrank 1: 1 of 3 checkpoints was\n"));
}

TEST(Table, NamesARankThatIsSlow) {
  NodeStatus other = node(1, 2);
  other.ranks[0].waits = 0.05;
  EXPECT_THAT(status_table({node(0, 2), other}, 0, 0),
              AllOf(HasSubstr("\nrank 2 is slow: all others wait for it most of the time\nRANK"),
                    HasSubstr("\n   2  bb    100  slow "), HasSubstr("\n   3  bb    101  runs ")));
  other.ranks[1].waits = 0.05;
  EXPECT_THAT(status_table({node(0, 2), other}, 0, 0), Not(HasSubstr("slow"))) << "two";
  other.ranks[1].waits = 0.5;
  EXPECT_THAT(status_table({node(0, 2), other}, 0, 0), Not(HasSubstr("slow"))) << "a third that computes as well";
  other.ranks[1].waits = -1;
  EXPECT_THAT(status_table({node(0, 2), other}, 0, 0), Not(HasSubstr("slow"))) << "too early to tell";
}

TEST(Table, FitsTheTerminalAndShowsSilentNodes) {
  NodeStatus silent = node(1, 0);
  silent.trouble = "has told nothing for 12 s";
  const std::string text = status_table({node(0, 9), silent}, 8, 40);
  EXPECT_THAT(text, AllOf(HasSubstr("node 1 (bb): has told nothing for 12 s\n"), HasSubstr("... and 5 more ranks\n"),
                          Not(HasSubstr("all_reduce"))));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 8);
}

// A line that is wider takes two of the terminal, and the first one is gone.
TEST(Table, NoLineIsWiderThanTheTerminal) {
  NodeStatus silent = node(1, 3), other = node(0, 3);
  silent.trouble = "has told nothing for 12 s, and nobody knows why";
  other.ranks[1].alarm = "1 of 3 checkpoints was not saved: \u00e4\u00e4\u00e4\u00e4";
  for (const int width : {1, 5, 20, 37, 44, 45, 46, 47, 48}) {
    const std::string text = status_table({other, silent}, 6, width);
    for (const std::string& line : split(text, '\n')) EXPECT_LE(line.size(), std::size_t(width)) << line;
    EXPECT_EQ(std::count(text.begin(), text.end(), '\xc3'), std::count(text.begin(), text.end(), '\xa4')) << text;
  }
}

}  // namespace
}  // namespace tutti::launch
