#pragma once
// Where embedding tables are placed so that no rank has more to do than the others, and none more than it can keep.
//
// The cost of a part is the bytes that a batch moves for it: rows that are read and pooled, gradients that come, rows
// that are stepped, indices that are looked through and sorted. What it leaves out is alike for all placements. Small
// tables are replicated where reducing their gradients moves fewer bytes than sending pooled rows; large ones are cut
// where they alone would be more than a rank's share, or than its memory; all parts then go to the rank that has least,
// in descending order of their cost (Graham's rule: at most a third above the best there is).
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/planning/tables/placement.h"

namespace tutti {

struct PlannerOptions {
  int ranks = 1;
  std::int64_t batch = 2048;      // samples
  std::int64_t number_bytes = 4;  // of a number of a row
  // Kept with a row beside its `dim` numbers: dim of them (Adagrad), one (row-wise Adagrad), or none.
  std::int64_t state_numbers_a_column = 0, state_numbers_a_row = 0;
  std::int64_t memory_bytes = 0;    // that each rank has for tables; 0: as much as is needed
  bool table_wise_only = false;     // tables are neither cut nor replicated
  std::int64_t least_columns = 16;  // of a part of a table: a cache line of floats
};

// A placement that passes check(). kLimit, with what is needed and what there is, if the tables cannot be placed.
// Depends on nothing but its arguments.
Result<TablePlacement> plan_tables(std::span<const TableSpec> tables, const PlannerOptions& options);

// What a placement costs.
struct PlacementCost {
  std::vector<double> bytes_moved;       // by rank, a batch
  std::vector<std::int64_t> bytes_kept;  // by rank
  double imbalance = 1;                  // the most that a rank moves, over the mean
};
PlacementCost cost_of(const TablePlacement& placement, std::span<const TableSpec> tables,
                      const PlannerOptions& options);

// For people: a line for each table and each rank, and the imbalance.
std::string placement_text(const TablePlacement& placement, std::span<const TableSpec> tables,
                           const PlannerOptions& options);

}  // namespace tutti
