#include "tutti/data/clicks/day_files.h"

#include <gmock/gmock.h>

namespace tutti {
namespace {

using testing::HasSubstr;
using Paths = std::vector<std::string>;

TEST(DayFiles, AreOrderedByTheirNumber) {
  const auto ordered = [](Paths paths) { return in_order_of_days(std::move(paths)).or_throw(); };
  EXPECT_EQ(ordered({"a/day_10", "a/day_8.gz", "b/day_9"}), Paths({"a/day_8.gz", "b/day_9", "a/day_10"}));
  EXPECT_EQ(ordered({"t3", "t2"}), Paths({"t2", "t3"}));
  EXPECT_EQ(ordered({"2.txt", "1.txt"}), Paths({"1.txt", "2.txt"}));
}

TEST(DayFiles, OtherNamesStayAsTheyWereGiven) {
  for (const Paths& paths :
       {Paths{"b", "a"}, Paths{"train_5", "test_4"}, Paths{"x9/b", "x9/a"}, Paths{"day_7"}, Paths{}})
    EXPECT_EQ(in_order_of_days(paths).or_throw(), paths);
}

TEST(DayFiles, AMissingDayIsNamed) {
  EXPECT_THAT(to_string(in_order_of_days({"day_0", "day_3", "day_1"}).error()),
              HasSubstr("day_2 is missing between day_1 and day_3"));
  EXPECT_THAT(to_string(in_order_of_days({"a/day_1", "b/day_1"}).error()),
              HasSubstr("a/day_1 and b/day_1 are the same day"));
}

}  // namespace
}  // namespace tutti
