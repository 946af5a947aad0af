// The programs of examples/tensor_parallel learn, and the same on any number of ranks.
#include <gmock/gmock.h>

#include <string>

#include "tests/launch/running.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

using ::testing::HasSubstr;

testing::Ended example(const std::string& name, int ranks) {
  return testing::run({TUTTI_COMMAND, "run", "-n", std::to_string(ranks), "--", std::string(EXAMPLES) + "/" + name},
                      {{"OMP_NUM_THREADS", "1"}, {"OPENBLAS_NUM_THREADS", "1"}});
}

void expect_learns_the_same_on_any_number_of_ranks(const std::string& name) {
  const auto alone = example(name, 1);
  EXPECT_EQ(alone.code, 0) << alone.err;
  const auto lines = split(alone.out, '\n');
  ASSERT_GE(lines.size(), 4u) << alone.out;
  const auto loss = [&](std::size_t line) { return parse_double(lines[line].substr(lines[line].rfind(' ') + 1)); };
  ASSERT_TRUE(loss(0) && loss(3)) << alone.out;
  EXPECT_LT(*loss(3), 0.5 * *loss(0)) << alone.out;
  for (const int ranks : {2, 4}) EXPECT_EQ(example(name, ranks).out, alone.out) << ranks;
}

TEST(TensorParallelExamples, SplitChannelsLearnsTheSameOnAnyNumberOfRanks) {
  expect_learns_the_same_on_any_number_of_ranks("split_channels");
}

TEST(TensorParallelExamples, ShardLinearLearnsTheSameOnAnyNumberOfRanks) {
  expect_learns_the_same_on_any_number_of_ranks("shard_linear");
}

TEST(TensorParallelExamples, WhatDoesNotDivideIsRejected) {
  const auto channels = example("split_channels", 3);
  EXPECT_NE(channels.code, 0);
  EXPECT_THAT(channels.err,
              HasSubstr("SplitConvolutions: 16 inner channels cannot be divided equally among 3 ranks (hint: "
                        "15 or 18 can)"));
  const auto features = example("shard_linear", 3);
  EXPECT_NE(features.code, 0);
  EXPECT_THAT(
      features.err,
      HasSubstr(
          "shard_linears: 1.query: 32 output features cannot be divided equally among 3 ranks (hint: 30 or 33 can)"));
}

}  // namespace
}  // namespace tutti
