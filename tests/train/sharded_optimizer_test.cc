// examples/sharded_optimizer as a program.
#include <gmock/gmock.h>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr char kProgram[] = EXAMPLES "/sharded_optimizer";

using ::testing::HasSubstr;

const std::map<std::string, std::string> kOneThread = {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}};

testing::Ended example(const std::string& stage) {
  return testing::run({TUTTI_COMMAND, "run", "-n", "2", "--", kProgram, stage}, kOneThread);
}

TEST(ShardedOptimizerExample, LearnsTheSameInEachStageAndKeepsAPart) {
  const auto first = example("1");
  EXPECT_EQ(first.code, 0) << first.err;
  const auto lines = split(first.out, '\n');
  ASSERT_GE(lines.size(), 6u) << first.out;
  EXPECT_THAT(lines[0], HasSubstr("step 0, loss 0.3"));
  EXPECT_THAT(lines[4], HasSubstr("step 100, loss 0.00"));
  EXPECT_THAT(lines[5], HasSubstr("rank 0 keeps 11"));  // of 2,236,544 bytes: 8 for each parameter
  for (const std::string stage : {"2", "3"}) {
    const auto other = split(example(stage).out, '\n');
    ASSERT_EQ(other.size(), lines.size());
    for (int line = 0; line < 5; ++line) EXPECT_EQ(other[std::size_t(line)], lines[std::size_t(line)]) << stage;
  }
}

TEST(ShardedOptimizerExample, AStageThatIsNoneIsRefused) {
  for (const std::string stage : {"4", "0", "-1", "two", "1x", ""}) {
    const auto ended = testing::run({kProgram, stage}, kOneThread);
    EXPECT_EQ(ended.code, 2) << stage;
    EXPECT_EQ(ended.err,
              "sharded_optimizer: there is no stage '" + stage + "'; give 1, 2 or 3\nusage: sharded_optimizer STAGE\n");
  }
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{kProgram}, {kProgram, "1", "2"}})
    EXPECT_THAT(testing::run(line, kOneThread).err, HasSubstr("sharded_optimizer: it takes one stage; give 1, 2 or 3"));
  EXPECT_EQ(example("4").code, 2) << "on ranks, too";
}

}  // namespace
}  // namespace tutti
