#include "tutti/models/dlrm/placing.h"

#include "tutti/base/file.h"
#include "tutti/planning/tables/plan_file.h"
#include "tutti/planning/tables/planner.h"

namespace tutti::dlrm {
namespace {

constexpr std::uint64_t kMostPlanBytes = std::uint64_t(1) << 26;

}  // namespace

PlannerOptions planner_options(const Options& options, int ranks) {
  PlannerOptions made{.ranks = ranks, .batch = options.training.batch};
  made.number_bytes = options.training.type == RealType::kFloat64 ? 8 : 4;
  made.state_numbers_a_column = options.training.optimizer == OptimizerKind::kAdagrad;
  made.state_numbers_a_row = options.training.optimizer == OptimizerKind::kRowWiseAdagrad;
  return made;
}

Result<Placing> place_tables(const Options& options, const std::vector<TableSpec>& tables, int ranks) {
  const auto planner = planner_options(options, ranks);
  Placing made;
  if (!options.placement.planned.tables.empty()) {
    made.placement = options.placement.planned;
  } else if (!options.placement.plan_file.empty()) {
    const auto text = TUTTI_TRY(read_file(options.placement.plan_file, kMostPlanBytes));
    auto plan = parse_plan(text, tables, ranks);
    if (!plan.ok()) {
      auto error = plan.error();
      error.detail = options.placement.plan_file + ": " + error.detail;
      return error;
    }
    made.placement = *std::move(plan);
  } else {
    made.placement = TUTTI_TRY(place_by_name(options.placement.placement, tables, planner));
  }
  made.text = placement_text(made.placement, tables, planner);
  return made;
}

}  // namespace tutti::dlrm
