#include "tutti/models/dlrm/auto_parallel.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tutti/base/text.h"
#include "tutti/models/dlrm/placing.h"

namespace tutti::dlrm {

RecommendationModel planned_model(const Architecture& architecture, const Options& options) {
  const PlannerOptions tables = planner_options(options, 1);
  RecommendationModel model;
  model.tables = table_specs(architecture, lookups_of(options.data));
  model.number = double(tables.number_bytes);
  model.dense_state = options.training.optimizer == OptimizerKind::kSgd ? 0 : 1;
  model.state_numbers_a_column = tables.state_numbers_a_column;
  model.state_numbers_a_row = tables.state_numbers_a_row;
  set_dense_layers(model, architecture.bottom, architecture.vectors(), architecture.dim,
                   architecture.interaction == Interaction::kDot, architecture.top);
  for (const Feature& feature : architecture.features) {  // matrices that widen rows
    if (feature.kind != FeatureKind::kProjected) continue;
    const std::int64_t sizes[] = {architecture.tables[feature.table].dim, architecture.dim};
    ReplicaLayer layer = mlp_model(sizes).layers[0];
    layer.parameters = layer.inputs * layer.outputs;
    layer.has_input_gradient = true;
    model.top.layers.push_back(layer);
  }
  return model;
}

std::int64_t samples_of_step(const TrainingOptions& options) { return options.batch * options.accumulate; }

RecommendationOptions planning_options(const Options& options) {
  RecommendationOptions made{.shares_memory = !options.placement.links_only};
  const double number = options.training.type == RealType::kFloat64 ? 8 : 4;
  switch (options.placement.wire) {
    case WireFormat::kExact:
      break;
    case WireFormat::kBF16:
      made.wire = 2 / number;
      break;
    case WireFormat::kI8:  // and a scale for each row
      made.wire = 1 / number + 4 / (number * double(options.architecture.mlp_bottom.back()));
      break;
  }
  return made;
}

Result<RecommendationPlans> choose_placement(const Options& options, const Architecture& architecture,
                                             const Cluster& cluster, const std::string& given) {
  const RecommendationModel model = planned_model(architecture, options);
  RecommendationOptions planning = planning_options(options);
  const int batch = int(std::min<std::int64_t>(samples_of_step(options.training), std::numeric_limits<int>::max()));
  if (!given.empty()) planning.placements = {given};
  RecommendationPlans plans = TUTTI_TRY(plan_recommendation(model, cluster, batch, planning));
  if (!options.placement.plan_file.empty()) {
    const Placing placing = TUTTI_TRY(place_tables(options, model.tables, cluster.devices()));
    plans.best = {evaluate(model, cluster, batch, planning, options.placement.plan_file, placing.placement)};
  }
  if (!plans.best.empty()) return plans;
  return Error{
      .code = Code::kInvalidArgument,
      .detail = fmt::format("--parallel auto: no placement of the tables fits: {} {}",
                            plans.unfit.empty() ? "none" : plans.unfit[0].name,
                            plans.unfit.empty() ? "can be made" : planning::why_not_fit(plans.unfit[0], plans.limit)),
      .hint = "use more ranks, or keep tables in files: --table-folder without --parallel auto"};
}

Options with_placement(Options options, const RankedPlacement& plan) {
  options.placement.planned = plan.placement;
  return options;
}

}  // namespace tutti::dlrm
