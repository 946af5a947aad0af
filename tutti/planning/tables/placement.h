#pragma once
// Which rank keeps which part of which embedding table. A value, alike on every rank; made by hand, by the planner
// (planner.h) or from a plan file (plan_file.h).
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/planning/tables/table_spec.h"

namespace tutti {

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
