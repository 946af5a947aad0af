#pragma once
// What an embedding table is, and which rank keeps which part of it. A placement is a value, the same on every rank,
// made by hand, by the planner (planner.h) or from a plan file (plan_file.h).
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

struct TableSpec {
  std::string name;       // for plan files and errors; unique among the tables of a model
  std::int64_t rows = 0;  // at least 1
  std::int64_t dim = 0;   // numbers of a row, at least 1
  double lookups = 1;     // indices of a sample, on average: what the planner reckons with
};

// A run of numbers, [begin, end).
struct Slice {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Slice&) const = default;
};

// The part of 0 .. n that falls to `rank` of `ranks`: as even as can be, the first n % ranks get one more
// (facebookresearch/dlrm: get_my_slice).
constexpr Slice my_slice(std::int64_t n, int rank, int ranks) {
  const std::int64_t each = n / ranks, more = n % ranks;
  return {rank * each + (rank < more ? rank : more), (rank + 1) * each + (rank + 1 < more ? rank + 1 : more)};
}
// The sizes of these parts, by rank (get_split_lengths).
std::vector<std::int64_t> split_lengths(std::int64_t n, int ranks);

enum class TableSharding : std::uint8_t {
  kTableWise,   // one rank has the whole table
  kRowWise,     // ranks have runs of rows; the reader adds their partial sums
  kColumnWise,  // ranks have runs of columns; the reader puts them side by side
  kReplicated,  // every rank has all of it; gradients are summed over the ranks
};
inline constexpr TableSharding kTableShardings[] = {TableSharding::kTableWise, TableSharding::kRowWise,
                                                    TableSharding::kColumnWise, TableSharding::kReplicated};
// "table-wise", "row-wise", "column-wise", "replicated"
const char* name(TableSharding sharding);

// A box of a table, and who keeps it.
struct TableShard {
  int rank = 0;
  Slice rows, columns;
  bool operator==(const TableShard&) const = default;
};

struct TablePlacement {
  struct Table {
    TableSharding sharding = TableSharding::kTableWise;
    // Row-wise: in the order of rows, column-wise: of columns, replicated: of ranks, one for each. A rank may have
    // several of one table.
    std::vector<TableShard> shards;
    bool operator==(const Table&) const = default;
  };
  int ranks = 1;
  std::vector<Table> tables;  // in the order of the model's TableSpecs
  bool operator==(const TablePlacement&) const = default;
};

// Whole tables in contiguous runs by their number, whatever their sizes: the layout of facebookresearch/dlrm. Fewer
// tables than ranks leave the last ranks without any.
TablePlacement place_by_count(std::span<const TableSpec> tables, int ranks);
// Single tables of a placement.
TablePlacement::Table place_whole(const TableSpec& table, int rank);
TablePlacement::Table place_by_rows(const TableSpec& table, std::span<const int> ranks);     // even runs, none empty
TablePlacement::Table place_by_columns(const TableSpec& table, std::span<const int> ranks);  // likewise
TablePlacement::Table place_everywhere(const TableSpec& table, int ranks);

// Whether every row and column of every table has a place, and one only (replicated: one on each rank), on ranks that
// exist. The error names the table and the gap, the overlap or the rank.
Status check(const TablePlacement& placement, std::span<const TableSpec> tables);

// The tables of which `rank` has a part, ascending: those whose lookups it must be given.
std::vector<std::size_t> tables_of(const TablePlacement& placement, int rank);

}  // namespace tutti
