// The bench itself: that its check sees a wrong result, that its sizes are those of the peers, that its lines can be
// read.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "bench/collectives/allocations.h"
#include "bench/collectives/groups.h"
#include "bench/collectives/limits.h"
#include "bench/collectives/report.h"
#include "tests/harness/ranks.h"
#include "tutti/base/sanitizers.h"
#include "tutti/comm/collectives.h"

namespace tutti::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Two vectors and an operation on them.
struct Bench {
  Bench(const Group& world, const Operation& operation, Size size)
      : a(size.bytes / 8 + 2),
        b(size.bytes / 8 + 2),
        exercise(make_exercise(world, operation, size,
                               {reinterpret_cast<std::byte*>(a.data()), reinterpret_cast<std::byte*>(b.data())})) {}
  float* result() { return reinterpret_cast<float*>((exercise->operation().in_place() ? a : b).data()); }

  std::vector<double> a, b;
  std::unique_ptr<Exercise> exercise;
};

const Operation& named(const std::string& name) {
  for (const Operation& operation : operations())
    if (operation.name == name) return operation;
  throw std::runtime_error("no " + name);
}

bool only_root_has_result(const Operation& operation) {
  return operation.kind == Kind::kReduce || operation.kind == Kind::kGather || operation.kind == Kind::kGatherV;
}

TEST(Sizes, GoByEightsTo16MegabytesAndEndWith64) {
  const auto all = sizes(8, std::size_t(64) << 20);
  EXPECT_THAT(all, ElementsAre(8, 64, 512, 4096, 32768, 262144, 2 << 20, 16 << 20, 64 << 20));
}

TEST(Sizes, IncludeTheEndsThatWereAskedFor) {
  EXPECT_THAT(sizes(100, 5000), ElementsAre(100, 512, 4096, 5000));
  EXPECT_THAT(sizes(1 << 20, 1 << 20), ElementsAre(1 << 20));
}

TEST(Groups, AreHalvesPairsOrLists) {
  EXPECT_THAT(*groups_of("world", 3), ElementsAre(ElementsAre(0, 1, 2)));
  EXPECT_THAT(*groups_of("halves", 4), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3)));
  EXPECT_THAT(*groups_of("even_odd", 4), ElementsAre(ElementsAre(0, 2), ElementsAre(1, 3)));
  EXPECT_THAT(*groups_of("pairs", 6), ElementsAre(ElementsAre(0, 1), ElementsAre(2, 3), ElementsAre(4, 5)));
  EXPECT_THAT(*groups_of("3,0/1", 4), ElementsAre(ElementsAre(3, 0), ElementsAre(1)));
}

TEST(Groups, ThatCannotBeAreRefusedInASentence) {
  const auto refused = [](const std::string& text, int ranks) { return groups_of(text, ranks).error().detail; };
  EXPECT_EQ(refused("pairs", 3), "--groups pairs cannot divide 3 ranks evenly");
  EXPECT_EQ(refused("halves", 3), "--groups halves cannot divide 3 ranks evenly");
  EXPECT_EQ(refused("0,1/1", 3), "--groups names rank 1 twice");
  EXPECT_EQ(refused("0,5", 3), "--groups names rank 5, but there are 3 ranks");
  EXPECT_EQ(refused("1,2", 3), "--groups leaves out rank 0, which prints the figures");
  EXPECT_EQ(refused("0,x", 3), "--groups: 'x' is no rank");
}

class EveryOperation : public ::testing::TestWithParam<int> {};

TEST_P(EveryOperation, DoesWhatTheCheckExpects) {
  const int ranks = GetParam();
  const auto outcomes = test::run_processes(ranks, [](Group& world) {
    for (const Operation& operation : operations())
      for (const auto& [bytes, op] :
           {std::pair(64, ReduceOp::kProduct), std::pair(4096, ReduceOp::kSum), std::pair(70000, ReduceOp::kSum)}) {
        Bench bench(world, operation, {.op = op, .bytes = std::size_t(bytes)});
        for (int again = 0; again < 2; ++again) {
          bench.exercise->write_pattern();
          bench.exercise->rewrite();
          bench.exercise->call();
          test::check(bench.exercise->count_wrong() == 0, operation.name, " of ", bytes,
                      " bytes: ", bench.exercise->count_wrong(), " wrong");
        }
      }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}
INSTANTIATE_TEST_SUITE_P(Ranks, EveryOperation, ::testing::Values(1, 2, 3),
                         [](const auto& info) { return std::to_string(info.param); });

TEST(Operations, EveryVerbIsMeasured) {
  for (int kind = 0; kind <= int(kLastCollective); ++kind)
    EXPECT_TRUE(std::any_of(operations().begin(), operations().end(), [&](const Operation& operation) {
      return operation.kind == Kind(kind);
    })) << name(Kind(kind));
}

// The first rank of an exscan gets nothing.
bool has_result(const Operation& operation, int rank) {
  return rank == 0 ? operation.kind != Kind::kExscan : !only_root_has_result(operation);
}

TEST(Check, CountsElementsThatAreWrong) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    for (const Operation& operation : operations()) {
      if (!operation.has_bytes() || operation.form == Form::kBytes || operation.form == Form::kJson) continue;
      Bench bench(world, operation, {.bytes = 4096});
      bench.exercise->write_pattern();
      bench.exercise->call();
      bench.result()[17] += 1;
      bench.result()[300] = std::numeric_limits<float>::quiet_NaN();
      const std::size_t wrong = has_result(operation, world.rank()) ? 2 : 0;
      test::check(bench.exercise->count_wrong() == wrong, operation.name, ": ", bench.exercise->count_wrong());
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(Check, SeesAnOperationThatDidNothing) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    for (const Operation& operation : operations()) {
      if (!operation.has_bytes()) continue;
      Bench bench(world, operation, {.bytes = 4096});
      bench.exercise->write_pattern();
      const bool keeps_its_data = world.rank() == 0 && operation.kind == Kind::kBroadcast;
      const bool nothing_wrong = keeps_its_data || !has_result(operation, world.rank());
      test::check((bench.exercise->count_wrong() == 0) == nothing_wrong, operation.name);
    }
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(Figure, MeasuresAndChecks) {
  for (const bool rewrite : {false, true}) {
    const auto outcomes = test::run_threads(2, [rewrite](Group& world) {
      Bench bench(world, named("all_reduce"), {.bytes = 8});
      std::vector<int> done;
      const bench::Figure figure = measure(world, bench.exercise.get(), {.warm_up = 1, .rounds = 2, .rewrite = rewrite},
                                           [&](int rounds) { done.push_back(rounds); });
      test::check(done == std::vector<int>{0, 1, 2}, "rounds told: ", done.size());
      test::check(figure.bytes == 8 && figure.wrong == 0, "bytes ", figure.bytes, " wrong ", figure.wrong);
      test::check(figure.us > 0 && figure.us_min <= figure.us, "us ", figure.us);
      test::check(figure.p50_us <= figure.p99_us && figure.p99_us <= figure.max_us, "p99 ", figure.p99_us);
    });
    EXPECT_EQ(test::describe(outcomes), "");
  }
}

TEST(Figure, SeveralGroupsMeasureAtOnceAndARankOutsideWaits) {
  const auto outcomes = test::run_threads(3, [](Group& world) {
    const Group mine = world.new_subgroups({{{0, 2}}}).or_throw();
    std::optional<Bench> bench;
    if (mine) bench.emplace(mine, named("all_gather"), Size{.bytes = 4096});
    const bench::Figure figure =
        measure(world, bench ? bench->exercise.get() : nullptr, {.warm_up = 0, .rounds = 1}, [](int) {});
    test::check(figure.us > 0 && figure.wrong == 0, "us ", figure.us);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// An exercise whose result is wrong from its second call on.
class Spoiled : public Exercise {
 public:
  Spoiled(const Group& group, std::byte* a) : Exercise(group, named("all_reduce"), {.bytes = 8}, {a, a}) {}
  void write_pattern() override {}
  void call() override { ++calls_; }
  std::size_t count_wrong() const override { return calls_ > 1 ? 2 : 0; }
  std::string plan_name() const override { return "spoiled"; }

 private:
  int calls_ = 0;
};

TEST(Figure, CountsWrongResultsAfterTheRounds) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    std::vector<std::byte> a(8);
    Spoiled exercise(world, a.data());
    const bench::Figure figure = measure(world, &exercise, {.warm_up = 0, .rounds = 1}, [](int) {});
    test::check(figure.wrong == 4, "wrong on both ranks: ", figure.wrong);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(Figure, CountsAllocationsOfACall) {
#if TUTTI_ASAN || TUTTI_TSAN
  GTEST_SKIP() << "sanitizers have an operator new of their own";
#endif
  const auto before = allocations();
  for (int i = 0; i < 3; ++i) ::operator delete(::operator new(8));
  EXPECT_GE(allocations(), before + 3);
  const auto outcomes = test::run_processes(2, [](Group& world) {
    Bench bench(world, named("all_gather_bytes"), {.bytes = 4096});
    const auto figure = measure(world, bench.exercise.get(), {.warm_up = 1, .rounds = 2}, [](int) {});
    // Its result is a vector of strings: three at least.
    test::check(figure.allocations >= 3 && figure.allocations < 1000, "in a call: ", figure.allocations);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// One that waits for longer than a rank looks by itself goes through the engine, which sleeps and looks at the peers.
TEST(Figure, ACallThatWaitsLongAllocatesNothing) {
#if TUTTI_ASAN || TUTTI_TSAN
  GTEST_SKIP() << "sanitizers have an operator new of their own";
#endif
  const auto outcomes = test::run_processes(2, [](Group& world) {
    std::vector<float> values(1000, 1.f);
    // The least of some rounds: an engine that is kept from its core may still hold what a call wants to have.
    std::uint64_t fewest = 1'000'000;
    for (int round = 0; round < 5; ++round) {
      const auto before = allocations();
      for (int call = 0; call < 3; ++call) {
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(20));
        all_reduce(world, std::span(values));
      }
      fewest = std::min(fewest, allocations() - before);
    }
    test::check(fewest == 0, "in three calls: ", fewest);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

// The engine has room for what it is handed before the first call is.
TEST(Figure, TheFirstCallThatWaitsLongAllocatesNothingEither) {
#if TUTTI_ASAN || TUTTI_TSAN
  GTEST_SKIP() << "sanitizers have an operator new of their own";
#endif
  const auto outcomes = test::run_processes(2, [](Group& world) {
    std::vector<float> values(1000, 1.f);
    // Together, so that all is there that a call needs, and the engine has had nothing to do.
    for (int call = 0; call < 20; ++call) all_reduce(world, std::span(values));
    if (world.rank() == 1) {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      return all_reduce(world, std::span(values));
    }
    const auto before = allocations();
    all_reduce(world, std::span(values));
    const auto during = allocations() - before;
    test::check(during == 0, "in the first: ", during);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

TEST(Limit, IsTheTimeOfTheBytesThatMustMove) {
  // Two vectors of 1000 bytes are read and written: 4000 bytes; two groups: 8000.
  EXPECT_DOUBLE_EQ(least_memory_seconds(named("all_reduce"), 1000, 2, 1, 1e9), 4e-6);
  EXPECT_DOUBLE_EQ(least_memory_seconds(named("all_reduce"), 1000, 2, 2, 1e9), 8e-6);
  EXPECT_DOUBLE_EQ(least_memory_seconds(named("reduce_scatter"), 1000, 4, 1, 1e9), 5e-6);
  // Four hosts: twice three quarters of the vector leave each.
  EXPECT_DOUBLE_EQ(least_wire_seconds(named("all_reduce"), 1000, 4, 1e9), 1.5e-6);
}

TEST(Limit, OfTheMemoryIsMeasured) {
  const auto outcomes = test::run_threads(2, [](Group& world) {
    std::vector<float> a(4096), b(4096, 2.f);
    const double speed = memory_speed(world, 2, reinterpret_cast<std::byte*>(a.data()),
                                      reinterpret_cast<const std::byte*>(b.data()), a.size() * sizeof(float));
    test::check(speed > 1e6 && speed < 1e14, "bytes a second: ", speed);
    test::check(a[0] > 0 && a[0] == a[4095], "it adds: ", a[0], " ", a[4095]);
  });
  EXPECT_EQ(test::describe(outcomes), "");
}

bench::Figure figure_of(std::size_t bytes, double us) {
  return {
      .bytes = bytes, .plan = "direct", .us = us, .us_min = us * 0.9, .p50_us = us, .p99_us = us * 2, .max_us = us * 3};
}

TEST(Report, JsonHasThePeersKeysAndItsOwn) {
  bench::Figure figure = figure_of(262144, 5.9);
  figure.limit_us = 2.95;
  const auto line = nlohmann::json::parse(json_line(named("all_reduce"), {.ranks = 2, .pinned = true}, figure));
  EXPECT_EQ(line["peer"], "tutti");
  EXPECT_EQ(line["op"], "all_reduce");
  EXPECT_EQ(line["ranks"], 2);
  EXPECT_EQ(line["bytes"], 262144);
  EXPECT_DOUBLE_EQ(line["us"], 5.9);
  EXPECT_DOUBLE_EQ(line["us_min"], 5.31);
  EXPECT_DOUBLE_EQ(line["p50_us"], 5.9);
  EXPECT_DOUBLE_EQ(line["p99_us"], 11.8);
  EXPECT_DOUBLE_EQ(line["limit_us"], 2.95);
  EXPECT_DOUBLE_EQ(line["of_limit"], 0.5);
  EXPECT_DOUBLE_EQ(line["algbw"], 44.431);
  EXPECT_EQ(line["wrong"], 0);
  EXPECT_EQ(line["plan"], "direct");
  EXPECT_EQ(line["dtype"], "f32");
  EXPECT_EQ(line["memory"], "heap");
  EXPECT_EQ(line["rewrite"], false);
  EXPECT_EQ(line["groups"], 1);
  EXPECT_EQ(line["hosts"], 1);
}

TEST(Report, NamesTheEngineThatIsNotOurs) {
  const auto line = nlohmann::json::parse(json_line(named("barrier"), {.engine = "gloo", .ranks = 2}, figure_of(0, 9)));
  EXPECT_EQ(line["peer"], "tutti over gloo");
  EXPECT_FALSE(line.contains("limit_us"));
}

TEST(Report, BusBandwidthHasTheFactorOfNcclTests) {
  EXPECT_THAT(table_row(named("all_reduce"), {.ranks = 4}, figure_of(4000, 1)),  // 4 GB/s; all_reduce: 2 * 3/4
              ::testing::ContainsRegex(" 4\\.00 +6\\.00 +0\n"));
}

TEST(Report, TheVerdictSaysHowFarFromTheLimitAndWhetherAllWasRight) {
  bench::Figure figure = figure_of(1 << 20, 50);
  figure.limit_us = 40;
  EXPECT_EQ(
      verdict(named("all_reduce"), {.ranks = 2}, figure, 0),
      "verdict: all_reduce of 1 MiB takes 50 us, 80 % of what the memory gives, a += k * b on all cores (at best 40 "
      "us); all results right\n");
  EXPECT_THAT(verdict(named("all_reduce"), {.ranks = 2, .hosts = 2}, figure, 3),
              ::testing::AllOf(HasSubstr("80 % of what the wire gives, one stream of TCP"),
                               HasSubstr("3 ELEMENTS WERE WRONG")));
}

}  // namespace
}  // namespace tutti::bench
