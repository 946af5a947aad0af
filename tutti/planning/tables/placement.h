#pragma once
// The description of an embedding table, and the ranks that hold its parts. A placement is a value, equal on every
// rank. It is written by hand, computed by the planner (planner.h), or read from a plan file (plan_file.h).
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

struct TableSpec {
  std::string name;       // for plan files and errors; unique in a model
  std::int64_t rows = 0;  // at least 1
  std::int64_t dim = 0;   // numbers per row, at least 1
  double lookups = 1;     // average indices per sample; input of the planner
};

// A range [begin, end).
struct Slice {
  std::int64_t begin = 0, end = 0;
  std::int64_t size() const { return end - begin; }
  bool operator==(const Slice&) const = default;
};

// The part of [0, n) for `rank` of `ranks`, as even as possible: the first n % ranks parts have one more
// (facebookresearch/dlrm: get_my_slice).
constexpr Slice my_slice(std::int64_t n, int rank, int ranks) {
  const std::int64_t each = n / ranks, more = n % ranks;
  return {rank * each + (rank < more ? rank : more), (rank + 1) * each + (rank + 1 < more ? rank + 1 : more)};
}
// The sizes of these parts by rank (get_split_lengths).
std::vector<std::int64_t> split_lengths(std::int64_t n, int ranks);

enum class TableSharding : std::uint8_t {
  kTableWise,   // one rank has the whole table
  kRowWise,     // ranks hold ranges of rows; the reader adds their partial sums
  kColumnWise,  // ranks hold ranges of columns; the reader concatenates them
  kReplicated,  // every rank has the whole table; gradients are summed over the ranks
};
inline constexpr TableSharding kTableShardings[] = {TableSharding::kTableWise, TableSharding::kRowWise,
                                                    TableSharding::kColumnWise, TableSharding::kReplicated};
// "table-wise", "row-wise", "column-wise", "replicated"
const char* name(TableSharding sharding);

// A rectangular part of a table, and the rank that holds it.
struct TableShard {
  int rank = 0;
  Slice rows, columns;
  bool operator==(const TableShard&) const = default;
};

struct TablePlacement {
  struct Table {
    TableSharding sharding = TableSharding::kTableWise;
    // Row-wise: ordered by rows. Column-wise: ordered by columns. Replicated: ordered by rank, one for each. A rank may
    // have several parts of one table.
    std::vector<TableShard> shards;
    bool operator==(const Table&) const = default;
  };
  int ranks = 1;
  std::vector<Table> tables;  // in the order of the model's TableSpecs
  bool operator==(const TablePlacement&) const = default;
};

// Places whole tables in contiguous ranges by number, whatever their sizes: the layout of facebookresearch/dlrm. With
// fewer tables than ranks the last ranks have none.
TablePlacement place_by_count(std::span<const TableSpec> tables, int ranks);
// Place a single table.
TablePlacement::Table place_whole(const TableSpec& table, int rank);
TablePlacement::Table place_by_rows(const TableSpec& table, std::span<const int> ranks);     // even ranges, none empty
TablePlacement::Table place_by_columns(const TableSpec& table, std::span<const int> ranks);  // even ranges, none empty
TablePlacement::Table place_everywhere(const TableSpec& table, int ranks);
// Cuts all tables over all ranks, or copies them to all: kRowWise, kColumnWise or kReplicated. A table with fewer rows
// or columns than there are ranks is cut into as many parts as it has.
TablePlacement place_all(TableSharding sharding, std::span<const TableSpec> tables, int ranks);

// Checks that every row and column of every table is placed exactly once (replicated: once per rank), on ranks that
// exist. The error names the table and the gap, the overlap or the rank.
Status check(const TablePlacement& placement, std::span<const TableSpec> tables);

// The tables of which `rank` holds a part, ascending: the tables whose lookups it needs.
std::vector<std::size_t> tables_of(const TablePlacement& placement, int rank);

}  // namespace tutti
