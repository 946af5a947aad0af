#pragma once
// Places embedding tables so that the ranks have about equal work and none exceeds its memory.
//
// The cost of a part is the bytes that a batch moves for it: rows read and pooled, gradients received, rows updated,
// indices searched and sorted. Costs that are equal in all placements are ignored. Small tables are replicated if
// reducing their gradients moves fewer bytes than sending pooled rows. Large tables are split if one alone would exceed
// a rank's share or memory. Then all parts are assigned in descending order of cost, each to the rank with the least
// work (Graham's rule: at most a third above the optimum).
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
  std::int64_t number_bytes = 4;  // bytes per number of a row
  // Optimizer state per row, in addition to its `dim` numbers: dim numbers (Adagrad), one (row-wise Adagrad), or none.
  std::int64_t state_numbers_a_column = 0, state_numbers_a_row = 0;
  std::int64_t memory_bytes = 0;    // per rank, for tables; 0: unlimited
  bool table_wise_only = false;     // tables are neither split nor replicated
  std::int64_t least_columns = 16;  // of a part of a table: a cache line of floats
  // Bytes moved in memory that a byte sent to another rank costs. 0: ranks read each other's memory.
  double sent_weight = 0;
};

// A placement that passes check(). Fails with kLimit, with required and available memory, if the tables do not fit.
// Depends only on its arguments.
Result<TablePlacement> plan_tables(std::span<const TableSpec> tables, const PlannerOptions& options);

// "auto" (plan_tables), "table-wise" (without cutting and copying tables), "count" (place_by_count), "row-wise",
// "column-wise" and "replicated" (place_all): the names that train_dlrm --placement takes.
const std::vector<std::string>& placement_names();
// Fails as plan_tables() does. `name` is one of placement_names().
Result<TablePlacement> place_by_name(const std::string& name, std::span<const TableSpec> tables,
                                     PlannerOptions options);

// The cost of a placement.
struct PlacementCost {
  // By rank and per batch; moved: in both passes, with what PlannerOptions::sent_weight adds.
  std::vector<double> bytes_moved, bytes_forward, bytes_backward;
  std::vector<double> bytes_sent;        // pooled rows to other ranks, which send as many gradients back
  double bytes_reduced = 0;              // gradients of replicated tables, on each rank
  std::vector<std::int64_t> bytes_kept;  // by rank
  double imbalance = 1;                  // the busiest rank over the mean
};
PlacementCost cost_of(const TablePlacement& placement, std::span<const TableSpec> tables,
                      const PlannerOptions& options);

// A report for people: a line per table, a line per rank, and the imbalance.
std::string placement_text(const TablePlacement& placement, std::span<const TableSpec> tables,
                           const PlannerOptions& options);

}  // namespace tutti
