// examples/tensor_parallel as a program: it learns, and the same on any number of ranks.
#include <gmock/gmock.h>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

testing::Ended example(int ranks) {
  return testing::run({TUTTI_COMMAND, "run", "-n", std::to_string(ranks), "--", SPLIT_CHANNELS},
                      {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}});
}

TEST(SplitChannelsExample, LearnsTheSameOnAnyNumberOfRanks) {
  const auto alone = example(1);
  EXPECT_EQ(alone.code, 0) << alone.err;
  const auto lines = split(alone.out, '\n');
  ASSERT_GE(lines.size(), 4u) << alone.out;
  const auto loss = [&](std::size_t line) { return parse_double(lines[line].substr(lines[line].rfind(' ') + 1)); };
  ASSERT_TRUE(loss(0) && loss(3)) << alone.out;
  EXPECT_LT(*loss(3), 0.5 * *loss(0)) << alone.out;
  for (const int ranks : {2, 4}) EXPECT_EQ(example(ranks).out, alone.out) << ranks;
}

TEST(SplitChannelsExample, ChannelsThatDoNotDivideAreRefused) {
  const auto ended = example(3);
  EXPECT_NE(ended.code, 0);
  EXPECT_THAT(ended.err,
              HasSubstr("SplitConvolutions: 16 inner channels cannot be divided equally among 3 ranks (hint: "
                        "15 or 18 can)"));
}

}  // namespace
}  // namespace tutti
