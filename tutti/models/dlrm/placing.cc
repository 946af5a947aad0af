#include "tutti/models/dlrm/placing.h"

#include <numeric>

#include "tutti/base/file.h"
#include "tutti/planning/tables/plan_file.h"
#include "tutti/planning/tables/planner.h"

namespace tutti::dlrm {
namespace {

constexpr std::uint64_t kMostPlanBytes = std::uint64_t(1) << 26;

PlannerOptions planner_options(const Options& options, int ranks) {
  PlannerOptions made{.ranks = ranks, .batch = options.training.batch};
  made.number_bytes = options.training.type == RealType::kFloat64 ? 8 : 4;
  made.state_numbers_a_column = options.training.optimizer == OptimizerKind::kAdagrad;
  made.state_numbers_a_row = options.training.optimizer == OptimizerKind::kRowWiseAdagrad;
  made.table_wise_only = options.placement.placement == "table-wise";
  return made;
}

// All tables cut or copied alike; a table with fewer rows or columns than there are ranks is cut into as many parts as
// it has.
TablePlacement all_alike(const std::string& how, const std::vector<TableSpec>& tables, int ranks) {
  TablePlacement placement{.ranks = ranks};
  for (const auto& table : tables) {
    const auto parts = std::min<std::int64_t>(ranks, how == "row-wise" ? table.rows : table.dim);
    std::vector<int> owners(std::size_t(how == "replicated" ? ranks : parts));
    std::iota(owners.begin(), owners.end(), 0);
    placement.tables.push_back(how == "row-wise"      ? place_by_rows(table, owners)
                               : how == "column-wise" ? place_by_columns(table, owners)
                                                      : place_everywhere(table, ranks));
  }
  return placement;
}

}  // namespace

const std::vector<std::string>& placement_names() {
  static const std::vector<std::string> names = {"auto",     "table-wise",  "count",
                                                 "row-wise", "column-wise", "replicated"};
  return names;
}

Result<Placing> place_tables(const Options& options, const std::vector<TableSpec>& tables, int ranks) {
  const auto planner = planner_options(options, ranks);
  const auto& how = options.placement.placement;
  Placing made;
  if (!options.placement.plan_file.empty()) {
    const auto text = TUTTI_TRY(read_file(options.placement.plan_file, kMostPlanBytes));
    auto plan = parse_plan(text, tables, ranks);
    if (!plan.ok()) {
      auto error = plan.error();
      error.detail = options.placement.plan_file + ": " + error.detail;
      return error;
    }
    made.placement = *std::move(plan);
  } else if (how == "auto" || how == "table-wise") {
    made.placement = TUTTI_TRY(plan_tables(tables, planner));
  } else if (how == "count") {
    made.placement = place_by_count(tables, ranks);
  } else {
    made.placement = all_alike(how, tables, ranks);
  }
  made.text = placement_text(made.placement, tables, planner);
  return made;
}

}  // namespace tutti::dlrm
