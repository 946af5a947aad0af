#pragma once
// Which tables lie on which ranks, as the options ask for it.
#include <string>
#include <vector>

#include "tutti/models/dlrm/options.h"
#include "tutti/planning/tables/planner.h"

namespace tutti::dlrm {

struct Placing {
  TablePlacement placement;
  std::string text;  // for people: the tables, what each rank has to do, the imbalance
};

// What the planner of tables is asked for these options.
PlannerOptions planner_options(const Options& options, int ranks);
// kUsage, kNotFound, kLimit: a plan file that cannot be read or is not one of these tables, tables that do not fit.
Result<Placing> place_tables(const Options& options, const std::vector<TableSpec>& tables, int ranks);

}  // namespace tutti::dlrm
