// Tests placements: which ones are rejected and with which messages, plan files in both directions, and the planner's
// balance.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tutti/planning/tables/placement.h"
#include "tutti/planning/tables/plan_file.h"
#include "tutti/planning/tables/planner.h"

namespace tutti {
namespace {

using testing::HasSubstr;

std::vector<TableSpec> specs() {
  return {{"users", 100, 64, 10}, {"items", 30, 32, 1}, {"places", 8, 16, 1}, {"hours", 24, 16, 1}};
}

TEST(Slices, MatchDivmodAndCoverEverything) {
  EXPECT_EQ(split_lengths(10, 4), (std::vector<std::int64_t>{3, 3, 2, 2}));
  EXPECT_EQ(split_lengths(8, 4), (std::vector<std::int64_t>{2, 2, 2, 2}));
  EXPECT_EQ(split_lengths(2, 3), (std::vector<std::int64_t>{1, 1, 0}));
  EXPECT_EQ(split_lengths(0, 2), (std::vector<std::int64_t>{0, 0}));
  for (const std::int64_t n : {0, 1, 7, 64, 1001})
    for (const int ranks : {1, 2, 3, 7}) {
      std::int64_t next = 0;
      for (int rank = 0; rank < ranks; ++rank) {
        EXPECT_EQ(my_slice(n, rank, ranks).begin, next);
        next = my_slice(n, rank, ranks).end;
      }
      EXPECT_EQ(next, n);
    }
}

TEST(Placement, ByCountIsContiguousAndMayLeaveRanksWithoutTables) {
  const auto tables = specs();
  const auto placement = place_by_count(tables, 3);
  EXPECT_TRUE(check(placement, tables).ok());
  EXPECT_EQ(tables_of(placement, 0), (std::vector<std::size_t>{0, 1}));
  EXPECT_EQ(tables_of(placement, 1), (std::vector<std::size_t>{2}));
  EXPECT_EQ(tables_of(placement, 2), (std::vector<std::size_t>{3}));
  EXPECT_TRUE(tables_of(place_by_count(tables, 6), 5).empty());
}

std::string refusal_of(const TablePlacement& placement, const std::vector<TableSpec>& tables) {
  const Status status = check(placement, tables);
  return status.ok() ? "" : to_string(status.error());
}

TEST(Placement, RejectsGapsOverlapsAndUnknownRanks) {
  const std::vector<TableSpec> tables{{"users", 100, 64}};
  const auto with = [&](TableSharding sharding, std::vector<TableShard> shards) {
    return refusal_of({2, {{sharding, std::move(shards)}}}, tables);
  };
  EXPECT_EQ(with(TableSharding::kRowWise, {{0, {0, 50}, {0, 64}}, {1, {50, 100}, {0, 64}}}), "");
  EXPECT_THAT(with(TableSharding::kRowWise, {{0, {0, 40}, {0, 64}}, {1, {50, 100}, {0, 64}}}),
              HasSubstr("the placement of table users leaves rows 40 - 50 without a rank"));
  EXPECT_THAT(with(TableSharding::kRowWise, {{0, {0, 60}, {0, 64}}, {1, {50, 100}, {0, 64}}}),
              HasSubstr("gives rows 50 - 60 to two ranks, the second is 1"));
  EXPECT_THAT(with(TableSharding::kRowWise, {{0, {0, 50}, {0, 64}}, {1, {50, 99}, {0, 64}}}),
              HasSubstr("leaves rows 99 - 100 without a rank"));
  EXPECT_THAT(with(TableSharding::kRowWise, {{0, {0, 50}, {0, 64}}, {1, {50, 101}, {0, 64}}}),
              HasSubstr("goes up to row 101, of 100 that there are"));
  EXPECT_THAT(with(TableSharding::kRowWise, {{0, {0, 50}, {0, 64}}, {1, {50, 100}, {0, 32}}}),
              HasSubstr("cuts it by rows, but rank 1's part is 0 - 32 of 64 the other way"));
  EXPECT_THAT(with(TableSharding::kColumnWise, {{0, {0, 100}, {0, 32}}, {1, {0, 100}, {48, 64}}}),
              HasSubstr("leaves columns 32 - 48 without a rank"));
  EXPECT_THAT(with(TableSharding::kTableWise, {{2, {0, 100}, {0, 64}}}),
              HasSubstr("names rank 2, but the ranks are 0 - 1"));
  EXPECT_THAT(with(TableSharding::kTableWise, {{0, {0, 50}, {0, 64}}, {1, {50, 100}, {0, 64}}}),
              HasSubstr("is table-wise, but has 2 parts"));
  EXPECT_THAT(with(TableSharding::kReplicated, {{0, {0, 100}, {0, 64}}}),
              HasSubstr("is replicated, but rank 1 is not in its place once"));
  EXPECT_THAT(with(TableSharding::kRowWise, {{0, {0, 0}, {0, 64}}, {1, {0, 100}, {0, 64}}}),
              HasSubstr("gives rank 0 no row (0 - 0)"));
  EXPECT_THAT(refusal_of(place_by_count(tables, 1), {{"users", 0, 64}}), HasSubstr("has 0 rows of 64 numbers"));
  EXPECT_THAT(refusal_of(place_by_count(specs(), 1), tables), HasSubstr("the placement has 4 tables, the model 1"));
  const std::vector<TableSpec> twins{{"a", 1, 1}, {"a", 1, 1}};
  EXPECT_THAT(refusal_of(place_by_count(twins, 1), twins), HasSubstr("two tables are named \"a\""));
}

constexpr const char* kPlan = R"({"ranks": 4, "tables": {
  "items":  {"sharding": "row-wise", "ranks": [0, 1, 3]},
  "users":  {"sharding": "column-wise", "parts": [{"rank": 1, "columns": [48, 64]}, {"rank": 0, "columns": [0, 48]}]},
  "places": {"sharding": "table-wise", "rank": 2},
  "hours":  {"sharding": "replicated"}}})";

TEST(PlanFile, ParsesItsTextAndRoundTrips) {
  const auto tables = specs();
  const auto plan = parse_plan(kPlan, tables, 4).or_throw();
  EXPECT_EQ(plan.tables[0].shards, (std::vector<TableShard>{{0, {0, 100}, {0, 48}}, {1, {0, 100}, {48, 64}}}));
  EXPECT_EQ(plan.tables[1].shards,
            (std::vector<TableShard>{{0, {0, 10}, {0, 32}}, {1, {10, 20}, {0, 32}}, {3, {20, 30}, {0, 32}}}));
  EXPECT_EQ(plan.tables[2], place_whole(tables[2], 2));
  EXPECT_EQ(plan.tables[3], place_everywhere(tables[3], 4));
  EXPECT_EQ(parse_plan(plan_text(plan, tables), tables, 4).or_throw(), plan);
}

std::string refusal_of(std::string text, const std::string& from = "", const std::string& to = "", int ranks = 4) {
  if (!from.empty()) {
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    text.replace(at, from.size(), to);
  }
  const auto plan = parse_plan(text, specs(), ranks);
  return plan.ok() ? "" : to_string(plan.error());
}

TEST(PlanFile, MistakesAreExplained) {
  EXPECT_EQ(refusal_of(kPlan), "");
  EXPECT_THAT(refusal_of("{"), HasSubstr("the plan of the tables is not JSON, at byte"));
  EXPECT_THAT(refusal_of("[]"), HasSubstr("is no JSON object"));
  EXPECT_THAT(refusal_of(kPlan, "", "", 2), HasSubstr("is for 4 ranks, and there are 2"));
  EXPECT_THAT(refusal_of(kPlan, "\"ranks\": 4,", ""), HasSubstr("does not say how many \"ranks\" it is for"));
  EXPECT_THAT(refusal_of(kPlan, "\"users\"", "\"user\""),
              AllOf(HasSubstr("places table user, which the model does not have"), HasSubstr("did you mean users?")));
  EXPECT_THAT(refusal_of(kPlan, "\"hours\":  {\"sharding\": \"replicated\"}", "\"hours\": 3"),
              HasSubstr("says of table hours nothing of its \"sharding\""));
  EXPECT_THAT(refusal_of(R"({"ranks": 4, "tables": {"users": {"sharding": "replicated"}}})"),
              HasSubstr("leaves out table items"));
  EXPECT_THAT(refusal_of(kPlan, "\"hours\"", "\"items\""), HasSubstr("has \"items\" twice"));
  EXPECT_THAT(refusal_of(kPlan, "replicated", "replicate"),
              AllOf(HasSubstr("sharding \"replicate\", which is not known"), HasSubstr("did you mean replicated?")));
  EXPECT_THAT(refusal_of(kPlan, "\"rank\": 2", "\"rank\": 4"), HasSubstr("names rank 4, but the ranks are 0 - 3"));
  EXPECT_THAT(refusal_of(kPlan, "\"rank\": 2", "\"rank\": -1"), HasSubstr("names rank -1, but the ranks are 0 - 3"));
  EXPECT_THAT(refusal_of(kPlan, "\"rank\": 2", "\"rank\": \"two\""), HasSubstr("rank \"two\", which is no number"));
  EXPECT_THAT(refusal_of(kPlan, ", \"rank\": 2", ""), HasSubstr("that it is table-wise, but not on which \"rank\""));
  EXPECT_THAT(refusal_of(kPlan, "[0, 48]", "[0, 40]"), HasSubstr("leaves columns 40 - 48 without a rank"));
  EXPECT_THAT(refusal_of(kPlan, "[0, 48]", "[0, 50]"), HasSubstr("gives columns 48 - 50 to two ranks"));
  EXPECT_THAT(refusal_of(kPlan, "[0, 48]", "[0, 48, 1]"), HasSubstr("[first, one after the last]"));
  EXPECT_THAT(refusal_of(kPlan, "\"columns\": [0", "\"colums\": [0"),
              AllOf(HasSubstr("has \"colums\" in a part of table users"), HasSubstr("did you mean columns?")));
  EXPECT_THAT(refusal_of(kPlan, "\"ranks\": [0, 1, 3]", "\"ranks\": []"), HasSubstr("which is no list of ranks"));
  EXPECT_THAT(refusal_of(kPlan, ", \"ranks\": [0, 1, 3]", ""), HasSubstr("needs one of \"ranks\" and \"parts\""));
}

std::int64_t most_kept(const TablePlacement& placement, const std::vector<TableSpec>& tables,
                       const PlannerOptions& options) {
  const auto kept = cost_of(placement, tables, options).bytes_kept;
  return *std::max_element(kept.begin(), kept.end());
}

TEST(Planner, EqualTablesAreDistributedEvenly) {
  std::vector<TableSpec> tables;
  for (int t = 0; t < 8; ++t) tables.push_back({"t" + std::to_string(t), 1'000'000, 64, 50});
  const PlannerOptions options{.ranks = 4};
  const auto placement = plan_tables(tables, options).or_throw();
  for (int rank = 0; rank < 4; ++rank) EXPECT_EQ(tables_of(placement, rank).size(), 2u);
  EXPECT_DOUBLE_EQ(cost_of(placement, tables, options).imbalance, 1);
}

TEST(Planner, CountsCostAndNotTables) {
  // One table costs as much as the seven others together.
  std::vector<TableSpec> tables{{"hot", 1'000'000, 64, 70}};
  for (int t = 0; t < 7; ++t) tables.push_back({"t" + std::to_string(t), 1'000'000, 64, 10});
  const PlannerOptions options{.ranks = 2, .table_wise_only = true};
  const auto placement = plan_tables(tables, options).or_throw();
  EXPECT_EQ(tables_of(placement, placement.tables[0].shards[0].rank).size(), 1u);
  EXPECT_LT(cost_of(placement, tables, options).imbalance, 1.05);
  EXPECT_GT(cost_of(place_by_count(tables, 2), tables, options).imbalance, 1.3);
}

TEST(Planner, OneLargeTableIsSplitAndSmallOnesAreReplicated) {
  const std::vector<TableSpec> tables{{"large", 10'000'000, 64, 100}, {"small", 50, 64, 1}};
  const PlannerOptions options{.ranks = 4};
  const auto placement = plan_tables(tables, options).or_throw();
  EXPECT_NE(placement.tables[0].sharding, TableSharding::kTableWise);
  EXPECT_EQ(placement.tables[0].shards.size(), 4u);
  EXPECT_EQ(placement.tables[1].sharding, TableSharding::kReplicated);
  EXPECT_LT(cost_of(placement, tables, options).imbalance, 1.05);
  const auto whole = plan_tables(tables, {.ranks = 4, .table_wise_only = true}).or_throw();
  EXPECT_EQ(whole.tables[0].sharding, TableSharding::kTableWise);
  EXPECT_EQ(whole.tables[1].sharding, TableSharding::kTableWise);
}

TEST(Planner, ATableLargerThanARanksMemoryIsSplitWithinTheLimit) {
  const std::int64_t gib = std::int64_t(1) << 30;
  const std::vector<TableSpec> tables{
      {"large", 12'000'000, 64, 1}, {"other", 1'000'000, 64, 50}, {"third", 4'000'000, 64, 1}};
  const PlannerOptions options{.ranks = 4, .state_numbers_a_row = 1, .memory_bytes = gib + gib / 4};
  const auto placement = plan_tables(tables, options).or_throw();
  EXPECT_GT(placement.tables[0].shards.size(), 2u);
  EXPECT_LE(most_kept(placement, tables, options), options.memory_bytes);
  EXPECT_EQ(cost_of(place_by_count(tables, 1), tables, options).bytes_kept[0], std::int64_t(17'000'000) * 65 * 4);
}

TEST(Planner, RejectsTablesThatDoNotFitWithTheRequiredMemory) {
  const std::vector<TableSpec> tables{{"large", 12'000'000, 64, 1}};
  const auto plan = plan_tables(tables, {.ranks = 2, .memory_bytes = std::int64_t(1) << 30});
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(to_string(plan.error()), AllOf(HasSubstr("no rank has room for"), HasSubstr("of table large"),
                                             HasSubstr("2 ranks have 1 GiB each")));
  const auto whole = plan_tables(tables, {.ranks = 8, .memory_bytes = std::int64_t(1) << 30, .table_wise_only = true});
  ASSERT_FALSE(whole.ok());
  EXPECT_THAT(to_string(whole.error()), HasSubstr("allow tables to be cut"));
}

TEST(Planner, PrintsItsTableAndTheImbalance) {
  const auto tables = specs();
  const PlannerOptions options{.ranks = 2};
  const std::string text = placement_text(place_by_count(tables, 2), tables, options);
  EXPECT_THAT(text, HasSubstr("users           100    64       10  table-wise on rank 0\n"));
  EXPECT_THAT(text, HasSubstr("imbalance 1."));
  EXPECT_THAT(placement_text(parse_plan(kPlan, tables, 4).or_throw(), tables, {.ranks = 4}),
              AllOf(HasSubstr("column-wise on ranks 0, 1"), HasSubstr("row-wise on ranks 0, 1, 3"),
                    HasSubstr("replicated on all")));
}

TEST(Planner, EveryRowOfAnyMixIsPlaced) {
  for (int seed = 0; seed < 200; ++seed) {
    std::vector<TableSpec> tables;
    std::uint64_t state = std::uint64_t(seed) * 7919 + 1;
    const auto next = [&](std::uint64_t n) {
      state = state * 6364136223846793005 + 1442695040888963407;
      return std::int64_t((state >> 33) % n);
    };
    const std::int64_t count = 1 + next(30);
    for (std::int64_t t = 0; t < count; ++t)
      tables.push_back({std::to_string(t), std::int64_t(1) << next(24), 1 + next(130), double(next(100))});
    const PlannerOptions options{.ranks = int(1 + next(9))};
    const auto placement = plan_tables(tables, options).or_throw();  // plan_tables() checks its result
    EXPECT_EQ(plan_tables(tables, options).or_throw(), placement);
    EXPECT_EQ(parse_plan(plan_text(placement, tables), tables, options.ranks).or_throw(), placement);
  }
}

}  // namespace
}  // namespace tutti
