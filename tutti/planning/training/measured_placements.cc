#include "tutti/planning/training/measured_placements.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/text.h"
#include "tutti/planning/training/run_table.h"

namespace tutti::planning {
namespace {

constexpr int kLeastPlacements = 2;

Status place(MeasuredPlacement& run, const PlacementQuestion& question, const Cluster& cluster) {
  if (run.global_batch < 1) return invalid_argument("there is no global batch", "a column gbs, or --global-batch");
  RecommendationOptions options = question.options;
  options.placements = {run.name};
  RecommendationPlans plans =
      TUTTI_TRY(plan_recommendation(question.model, with_devices(cluster, run.devices), run.global_batch, options));
  std::vector<RankedPlacement>& made = plans.best.empty() ? plans.unfit : plans.best;
  if (made.empty())
    return invalid_argument(fmt::format("placement {} cannot be made for devices {}", run.name, run.devices));
  run.placement = std::move(made[0].placement);
  return {};
}

Status set_cell(MeasuredPlacement& run, const std::string& column, const std::string& cell) {
  if (column == "placement") {
    std::vector<std::string> known = placement_names();
    known.emplace_back(kNetworkPlacement);
    if (std::find(known.begin(), known.end(), cell) == known.end())
      return invalid_argument(fmt::format("there is no placement '{}'", cell),
                              did_you_mean(nearest(cell, known), "known: " + join(known, ", ")));
    run.name = cell;
    return {};
  }
  (column == "gbs" ? run.global_batch : run.devices) = TUTTI_TRY(size_in_cell(column, cell));
  if (run.devices > kMostDevices)
    return invalid_argument(fmt::format("{} devices, expected at most {}", run.devices, kMostDevices));
  return {};
}

RankedPlacement evaluated(const MeasuredPlacement& run, const PlacementQuestion& question, const Cluster& cluster) {
  return evaluate(question.model, with_devices(cluster, run.devices), run.global_batch, question.options, run.name,
                  run.placement);
}

}  // namespace

Result<std::vector<MeasuredPlacement>> parse_measured_placements(std::string_view text, const std::string& file,
                                                                 const PlacementQuestion& question,
                                                                 const Cluster& cluster,
                                                                 const MeasuredPlacement& other) {
  std::vector<MeasuredPlacement> runs;
  MeasuredPlacement run;
  const RunTable table{
      .columns = {"placement", "devices", "gbs"},
      .begin = [&] { run = other; },
      .set = [&](const std::string& column, const std::string& cell) { return set_cell(run, column, cell); },
      .end = [&](double seconds) -> Status {
        run.seconds = seconds;
        TUTTI_TRY(place(run, question, cluster));
        runs.push_back(run);
        return {};
      }};
  TUTTI_TRY(read_run_table(text, file, table));
  return runs;
}

Agreement compare(const std::vector<MeasuredPlacement>& runs, const PlacementQuestion& question,
                  const Cluster& cluster) {
  const double memory = question.options.memory > 0 ? question.options.memory : usable_memory(cluster);
  std::vector<ComparedRun> compared;
  for (const MeasuredPlacement& run : runs) {
    const RankedPlacement plan = evaluated(run, question, cluster);
    compared.push_back({.group = fmt::format("{} {}", run.global_batch, run.devices),
                        .predicted = plan.time.step(),
                        .measured = run.seconds,
                        .fits = plan.most_memory() <= memory});
  }
  return agreement_of(compared, kLeastPlacements);
}

Cluster calibrated(const std::vector<MeasuredPlacement>& runs, const PlacementQuestion& question,
                   const Cluster& cluster) {
  std::vector<double> measured;
  for (const MeasuredPlacement& run : runs)
    if (run.seconds > 0) measured.push_back(run.seconds);
  return calibrated(cluster, measured, [&](const Cluster& one) {
    std::vector<double> predicted;
    for (const MeasuredPlacement& run : runs)
      if (run.seconds > 0) predicted.push_back(evaluated(run, question, one).time.step());
    return predicted;
  });
}

}  // namespace tutti::planning
