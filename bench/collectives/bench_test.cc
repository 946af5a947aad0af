// The bench itself: that its check sees a wrong result, that its sizes are those of the peers, that its lines can be
// read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "bench/collectives/report.h"
#include "tests/harness/ranks.h"

namespace tutti::bench {
namespace {

using ::testing::ElementsAre;

TEST(Sizes, GoByEightsTo16MegabytesAndEndWith64) {
  const auto all = sizes(8, std::size_t(64) << 20);
  EXPECT_THAT(all, ElementsAre(8, 64, 512, 4096, 32768, 262144, 2 << 20, 16 << 20, 64 << 20));
}

TEST(Sizes, IncludeTheEndsThatWereAskedFor) {
  EXPECT_THAT(sizes(100, 5000), ElementsAre(100, 512, 4096, 5000));
  EXPECT_THAT(sizes(1 << 20, 1 << 20), ElementsAre(1 << 20));
}

class EveryOperation : public ::testing::TestWithParam<int> {};

TEST_P(EveryOperation, DoesWhatTheCheckExpects) {
  const int ranks = GetParam();
  const auto outcomes = test::run_threads(ranks, [](Group& world) {
    for (const Operation& operation : operations())
      for (const std::size_t bytes : {64, 4096, 70000}) {
        std::vector<double> a(bytes / 8 + 1), b(bytes / 8 + 1);
        Exercise exercise(world, operation, DType::kF32, ReduceOp::kSum, bytes, reinterpret_cast<std::byte*>(a.data()),
                          reinterpret_cast<std::byte*>(b.data()));
        exercise.write_pattern();
        exercise.call();
        test::check(exercise.count_wrong() == 0, operation.name, " of ", bytes, " bytes: ", exercise.count_wrong(),
                    " wrong");
      }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}
INSTANTIATE_TEST_SUITE_P(Ranks, EveryOperation, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(Check, CountsElementsThatAreWrong) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    for (const Operation& operation : operations()) {
      if (operation.kind == Kind::kBarrier) continue;
      std::vector<float> a(1024), b(1024);
      Exercise exercise(world, operation, DType::kF32, ReduceOp::kSum, 4096, reinterpret_cast<std::byte*>(a.data()),
                        reinterpret_cast<std::byte*>(b.data()));
      exercise.write_pattern();
      exercise.call();
      const bool in_place = operation.kind == Kind::kAllReduce || operation.kind == Kind::kBroadcast;
      (in_place ? a : b)[17] += 1;
      (in_place ? a : b)[300] = std::numeric_limits<float>::quiet_NaN();
      const bool has_result =
          world.rank() == 0 ||
          (operation.kind != Kind::kReduce && operation.kind != Kind::kGather && operation.kind != Kind::kGatherV);
      test::check(exercise.count_wrong() == (has_result ? 2u : 0u), operation.name, ": ", exercise.count_wrong());
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(Check, SeesAnOperationThatDidNothing) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    for (const Operation& operation : operations()) {
      if (operation.kind == Kind::kBarrier) continue;
      std::vector<float> a(1024), b(1024);
      Exercise exercise(world, operation, DType::kF32, ReduceOp::kSum, 4096, reinterpret_cast<std::byte*>(a.data()),
                        reinterpret_cast<std::byte*>(b.data()));
      exercise.write_pattern();
      const bool keeps_its_data = world.rank() == 0 && operation.kind == Kind::kBroadcast;
      const bool no_result = world.rank() != 0 && (operation.kind == Kind::kReduce || operation.kind == Kind::kGather ||
                                                   operation.kind == Kind::kGatherV);
      test::check((exercise.count_wrong() == 0) == (keeps_its_data || no_result), operation.name);
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(Figure, MeasuresAndChecks) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    std::vector<float> a(2), b(2);
    Exercise exercise(world, operations()[0], DType::kF32, ReduceOp::kSum, 8, reinterpret_cast<std::byte*>(a.data()),
                      reinterpret_cast<std::byte*>(b.data()));
    std::vector<int> done;
    const bench::Figure figure =
        measure(world, exercise, {.warm_up = 1, .rounds = 2}, [&](int rounds) { done.push_back(rounds); });
    test::check(done == std::vector<int>{0, 1, 2}, "rounds told: ", done.size());
    test::check(figure.bytes == 8 && figure.wrong == 0, "bytes ", figure.bytes, " wrong ", figure.wrong);
    test::check(figure.us > 0 && figure.us_min <= figure.us && figure.p99_us <= figure.max_us, "us ", figure.us);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(Report, JsonHasThePeersKeys) {
  const bench::Figure figure{
      .bytes = 262144, .plan = "direct", .us = 5.9, .us_min = 5.7, .p99_us = 8, .max_us = 9, .wrong = 0};
  const auto line = nlohmann::json::parse(json_line(operations()[0], 2, figure));
  EXPECT_EQ(line["peer"], "tutti");
  EXPECT_EQ(line["op"], "all_reduce");
  EXPECT_EQ(line["ranks"], 2);
  EXPECT_EQ(line["bytes"], 262144);
  EXPECT_DOUBLE_EQ(line["us"], 5.9);
  EXPECT_DOUBLE_EQ(line["us_min"], 5.7);
  EXPECT_EQ(line["plan"], "direct");
}

TEST(Report, BusBandwidthHasTheFactorOfNcclTests) {
  const bench::Figure figure{.bytes = 4000, .plan = "ring", .us = 1};  // 4 GB/s
  EXPECT_THAT(table_row(operations()[0], 4, figure),
              ::testing::ContainsRegex(" 4\\.00 +6\\.00 +0\n"));  // all_reduce: 2 * 3/4
}

}  // namespace
}  // namespace tutti::bench
