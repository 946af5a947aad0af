#include "tutti/planning/grid_drawing.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tutti/base/text.h"

namespace tutti {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(GridDrawing, RowsAreStagesAndBlocksAreTensorGroups) {
  EXPECT_EQ(draw_text(Grid(16, {.tensor = 2, .pipeline = 4}), 80),
            "       dp 0        dp 1\n"
            "       tp 0 tp 1   tp 0 tp 1\n"
            "pp 0      0    1      2    3\n"
            "pp 1      4    5      6    7\n"
            "pp 2      8    9     10   11\n"
            "pp 3     12   13     14   15\n");
}

TEST(GridDrawing, TheOrderChangesTheNumbersAlone) {
  EXPECT_EQ(draw_text(Grid(8, {.tensor = 2, .pipeline = 2, .order = "tp-pp-dp"}), 80),
            "       dp 0        dp 1\n"
            "       tp 0 tp 1   tp 0 tp 1\n"
            "pp 0      0    1      4    5\n"
            "pp 1      2    3      6    7\n");
}

TEST(GridDrawing, ContextRanksStandBetweenDataAndTensorRanks) {
  EXPECT_EQ(draw_text(Grid(8, {.tensor = 2, .context = 2}), 80),
            "   dp 0                    dp 1\n"
            "   cp 0        cp 1        cp 0        cp 1\n"
            "   tp 0 tp 1   tp 0 tp 1   tp 0 tp 1   tp 0 tp 1\n"
            "      0    1      2    3      4    5      6    7\n");
}

TEST(GridDrawing, AxesOfSizeOneHaveNoNames) {
  EXPECT_EQ(draw_text(Grid(1, {}), 80), " 0\n");
  EXPECT_EQ(draw_text(Grid(3, {}), 80), " dp 0 dp 1 dp 2\n    0    1    2\n");
}

TEST(GridDrawing, ColumnsThatDoNotFitAreCounted) {
  const std::string text = draw_text(Grid(4096, {.tensor = 8, .pipeline = 4}), 100);
  for (const std::string& line : split(text, '\n')) EXPECT_LE(line.size(), 100u) << line;
  EXPECT_THAT(text, EndsWith("not shown: 1008 more columns, to the right\n"));
  // One block at least, however narrow the terminal is.
  EXPECT_THAT(draw_text(Grid(4, {.tensor = 2}), 1), HasSubstr("0    1\nnot shown: 2 more columns, to the right\n"));
}

TEST(GridDrawing, ThePictureMarksHosts) {
  const Grid grid(8, {.tensor = 2, .pipeline = 2});
  const std::vector<int> hosts = {0, 0, 0, 0, 1, 1, 1, 1};
  const std::string svg = draw_svg(grid, hosts, "a < b");
  EXPECT_THAT(svg, HasSubstr("a &lt; b"));
  EXPECT_THAT(svg, HasSubstr("fill=\"#a9c8ee\" stroke=\"#fff\"><title>rank 3: tp 1, dp 1, pp 0, host 0</title>"));
  EXPECT_THAT(svg, HasSubstr("fill=\"#b4dcb8\" stroke=\"#fff\"><title>rank 4: tp 0, dp 0, pp 1, host 1</title>"));
  EXPECT_THAT(svg, HasSubstr("A color is one of 2 hosts. A frame is a tensor group."));
  const std::string plain = draw_svg(Grid(2, {}), {}, "two");
  EXPECT_THAT(plain, HasSubstr("A color is a stage.<"));
  EXPECT_THAT(plain, Not(HasSubstr("host")));
}

TEST(GridDrawing, EveryRankIsInThePictureOnce) {
  const Grid grid(256, {.tensor = 4, .pipeline = 2, .context = 2});
  const std::string svg = draw_svg(grid, {}, "many");
  for (int rank = 0; rank < grid.size(); ++rank) {
    const std::string title = "<title>rank " + std::to_string(rank) + ":";
    const std::size_t at = svg.find(title);
    ASSERT_NE(at, svg.npos) << rank;
    ASSERT_EQ(svg.find(title, at + 1), svg.npos) << rank;
  }
}

}  // namespace
}  // namespace tutti
