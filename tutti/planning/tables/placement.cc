// A placement is valid if the parts of each table tile it. Row-wise and column-wise parts form a line, so one walk
// along it checks the tiling: each part must begin where the last one ended.
#include "tutti/planning/tables/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <set>

namespace tutti {
namespace {

Error misplaced(const TableSpec& table, std::string what, std::string hint = {}) {
  return invalid_argument(fmt::format("the placement of table {} {}", table.name, what), std::move(hint));
}

// Checks a table that is split along one axis. `what`: "row" or "column".
Status check_run(const TableSpec& table, const TablePlacement::Table& placed, Slice TableShard::*along,
                 Slice TableShard::*across, std::int64_t length, std::int64_t width, const char* what) {
  std::int64_t next = 0;
  for (const TableShard& shard : placed.shards) {
    const Slice run = shard.*along, whole = shard.*across;
    if (whole != Slice{0, width})
      return misplaced(table, fmt::format("cuts it by {}s, but rank {}'s part is {} - {} of {} the other way", what,
                                          shard.rank, whole.begin, whole.end, width));
    if (run.begin >= run.end)
      return misplaced(table, fmt::format("gives rank {} no {} ({} - {})", shard.rank, what, run.begin, run.end));
    if (run.begin > next)
      return misplaced(table, fmt::format("leaves {}s {} - {} without a rank", what, next, run.begin));
    if (run.begin < next)
      return misplaced(table, fmt::format("gives {}s {} - {} to two ranks, the second is {}", what, run.begin,
                                          std::min(next, run.end), shard.rank));
    next = run.end;
  }
  if (next < length) return misplaced(table, fmt::format("leaves {}s {} - {} without a rank", what, next, length));
  if (next > length) return misplaced(table, fmt::format("goes up to {} {}, of {} that there are", what, next, length));
  return {};
}

Status check_table(const TableSpec& table, const TablePlacement::Table& placed, int ranks) {
  if (table.rows < 1 || table.dim < 1)
    return invalid_argument(
        fmt::format("table {} has {} rows of {} numbers; both must be at least 1", table.name, table.rows, table.dim));
  for (const TableShard& shard : placed.shards)
    if (shard.rank < 0 || shard.rank >= ranks)
      return misplaced(table, fmt::format("names rank {}, but the ranks are 0 - {}", shard.rank, ranks - 1));
  const auto by_rows = [&](const TablePlacement::Table& what) {
    return check_run(table, what, &TableShard::rows, &TableShard::columns, table.rows, table.dim, "row");
  };
  switch (placed.sharding) {
    case TableSharding::kTableWise:
      if (placed.shards.size() > 1)
        return misplaced(table, fmt::format("is table-wise, but has {} parts", placed.shards.size()),
                         "one rank keeps the whole table, or the table is cut row-wise or column-wise");
      return by_rows(placed);
    case TableSharding::kRowWise:
      return by_rows(placed);
    case TableSharding::kColumnWise:
      return check_run(table, placed, &TableShard::columns, &TableShard::rows, table.dim, table.rows, "column");
    case TableSharding::kReplicated:
      for (int rank = 0; rank < ranks; ++rank) {
        const auto of_rank = [&](const TableShard& shard) { return shard.rank == rank; };
        if (std::count_if(placed.shards.begin(), placed.shards.end(), of_rank) != 1 ||
            placed.shards[std::size_t(rank)].rank != rank)
          return misplaced(table, fmt::format("is replicated, but rank {} is not in its place once", rank));
        TUTTI_TRY(by_rows({TableSharding::kTableWise, {placed.shards[std::size_t(rank)]}}));
      }
      return {};
  }
  return {};
}

Slice all_rows(const TableSpec& table) { return {0, table.rows}; }
Slice all_columns(const TableSpec& table) { return {0, table.dim}; }

}  // namespace

const char* name(TableSharding sharding) {
  switch (sharding) {
    case TableSharding::kTableWise:
      return "table-wise";
    case TableSharding::kRowWise:
      return "row-wise";
    case TableSharding::kColumnWise:
      return "column-wise";
    case TableSharding::kReplicated:
      return "replicated";
  }
  return "?";
}

std::vector<std::int64_t> split_lengths(std::int64_t n, int ranks) {
  std::vector<std::int64_t> lengths;
  for (int rank = 0; rank < ranks; ++rank) lengths.push_back(my_slice(n, rank, ranks).size());
  return lengths;
}

TablePlacement::Table place_whole(const TableSpec& table, int rank) {
  return {TableSharding::kTableWise, {{rank, all_rows(table), all_columns(table)}}};
}

TablePlacement::Table place_by_rows(const TableSpec& table, std::span<const int> ranks) {
  TablePlacement::Table placed{TableSharding::kRowWise, {}};
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (const Slice rows = my_slice(table.rows, int(i), int(ranks.size())); rows.size() > 0)
      placed.shards.push_back({ranks[i], rows, all_columns(table)});
  return placed;
}

TablePlacement::Table place_by_columns(const TableSpec& table, std::span<const int> ranks) {
  TablePlacement::Table placed{TableSharding::kColumnWise, {}};
  for (std::size_t i = 0; i < ranks.size(); ++i)
    if (const Slice columns = my_slice(table.dim, int(i), int(ranks.size())); columns.size() > 0)
      placed.shards.push_back({ranks[i], all_rows(table), columns});
  return placed;
}

TablePlacement::Table place_everywhere(const TableSpec& table, int ranks) {
  TablePlacement::Table placed{TableSharding::kReplicated, {}};
  for (int rank = 0; rank < ranks; ++rank) placed.shards.push_back({rank, all_rows(table), all_columns(table)});
  return placed;
}

TablePlacement place_by_count(std::span<const TableSpec> tables, int ranks) {
  TablePlacement placement{ranks, std::vector<TablePlacement::Table>(tables.size())};
  for (int rank = 0; rank < ranks; ++rank) {
    const Slice mine = my_slice(std::int64_t(tables.size()), rank, ranks);
    for (std::int64_t t = mine.begin; t < mine.end; ++t)
      placement.tables[std::size_t(t)] = place_whole(tables[std::size_t(t)], rank);
  }
  return placement;
}

TablePlacement place_all(TableSharding sharding, std::span<const TableSpec> tables, int ranks) {
  TUTTI_REQUIRE(sharding != TableSharding::kTableWise, "tables: a whole table is on one rank, not on all");
  TablePlacement placement{.ranks = ranks, .tables = {}};
  for (const TableSpec& table : tables) {
    if (sharding == TableSharding::kReplicated) {
      placement.tables.push_back(place_everywhere(table, ranks));
      continue;
    }
    const bool by_rows = sharding == TableSharding::kRowWise;
    std::vector<int> owners(std::size_t(std::min<std::int64_t>(ranks, by_rows ? table.rows : table.dim)));
    std::iota(owners.begin(), owners.end(), 0);
    placement.tables.push_back(by_rows ? place_by_rows(table, owners) : place_by_columns(table, owners));
  }
  return placement;
}

Status check(const TablePlacement& placement, std::span<const TableSpec> tables) {
  if (placement.ranks < 1) return invalid_argument(fmt::format("a placement on {} ranks", placement.ranks));
  if (placement.tables.size() != tables.size())
    return invalid_argument(
        fmt::format("the placement has {} tables, the model {}", placement.tables.size(), tables.size()));
  std::set<std::string> names;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    if (!names.insert(tables[t].name).second)
      return invalid_argument(fmt::format("two tables are named \"{}\"", tables[t].name));
    TUTTI_TRY(check_table(tables[t], placement.tables[t], placement.ranks));
  }
  return {};
}

std::vector<std::size_t> tables_of(const TablePlacement& placement, int rank) {
  std::vector<std::size_t> tables;
  for (std::size_t t = 0; t < placement.tables.size(); ++t) {
    const auto& shards = placement.tables[t].shards;
    if (std::any_of(shards.begin(), shards.end(), [&](const TableShard& shard) { return shard.rank == rank; }))
      tables.push_back(t);
  }
  return tables;
}

}  // namespace tutti
