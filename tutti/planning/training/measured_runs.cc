#include "tutti/planning/training/measured_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>

#include "tutti/planning/training/memory.h"
#include "tutti/planning/training/run_table.h"
#include "tutti/planning/training/step_time.h"

namespace tutti::planning {
namespace {

constexpr int kLeastGroup = 5;

const std::vector<std::string>& model_columns() {
  static const std::vector<std::string> columns = {"devices", "gbs", "hidden", "heads", "layers", "seq", "vocab"};
  return columns;
}

Status set_cell(MeasuredRun& run, int& devices, const std::string& column, const std::string& cell) {
  if (std::find(model_columns().begin(), model_columns().end(), column) == model_columns().end())
    return set_in_plan(run.plan, column + "=" + cell);
  const int value = TUTTI_TRY(size_in_cell(column, cell));
  TransformerConfig& model = run.model;
  if (column == "devices") devices = value;
  if (column == "gbs") run.global_batch = value;
  if (column == "hidden") model.hidden = value, model.ffn = 4 * value;
  if (column == "heads") model.heads = model.query_groups = value;
  if (column == "layers") model.layers = value;
  if (column == "seq") model.sequence_length = model.positions = value;
  if (column == "vocab") model.vocabulary = value;
  return {};
}

Status check_run(MeasuredRun& run) {
  if (run.model.heads > 0) run.model.head_size = run.model.hidden / run.model.heads;
  run.model = with_defaults(run.model);
  TUTTI_TRY(check(run.model));
  const ParallelPlan& plan = run.plan;
  if (plan.devices() > kMostDevices)
    return invalid_argument(fmt::format("tp x cp x pp x dp is above {} devices", kMostDevices));
  TUTTI_TRY(check(run.model, {plan.tensor, plan.pipeline, plan.chunks, plan.context, plan.sequence_parallel}));
  if (run.global_batch < 1) return invalid_argument("there is no global batch", "a column gbs, or --global-batch");
  if (run.global_batch % plan.batch_unit() != 0)
    return invalid_argument(fmt::format("a batch of {} cannot be divided by dp {} x mbs {}", run.global_batch,
                                        plan.data, plan.micro_batch));
  return as_result([&] {
           (void)stages_with_ends(run.model.layers, plan.stages(), plan.ends);
           return make_schedule(plan.schedule, {.ranks = plan.pipeline, .microbatches = 1, .chunks = plan.chunks});
         })
      .status();
}

// Of runs of one model and batch, which share a StepModel.
std::string group_of(const MeasuredRun& run) {
  const TransformerConfig& model = run.model;
  return fmt::format("{} {} {} {} {} {} {}", model.hidden, model.heads, model.layers, model.sequence_length,
                     model.vocabulary, run.global_batch, run.plan.devices());
}

std::vector<double> predictions(const std::vector<MeasuredRun>& runs, const Cluster& cluster,
                                const TrainingRuntime& runtime, bool exactly) {
  std::map<std::string, StepModel> models;
  std::vector<double> steps;
  for (const MeasuredRun& run : runs) {
    const std::string group = group_of(run);
    auto found = models.find(group);
    if (found == models.end()) {
      const Cluster used = with_devices(cluster, run.plan.devices());
      if (const Status status = check(used); !status.ok())
        Status(invalid_argument(fmt::format("runs of {} devices: {}", used.devices(), status.error().detail),
                                status.error().hint))
            .or_throw();
      found = models.try_emplace(group, run.model, used, runtime, run.global_batch).first;
    }
    steps.push_back(exactly ? found->second.exact_step(run.plan) : found->second.bounds(run.plan).estimate);
  }
  return steps;
}

std::vector<MeasuredRun> ended(const std::vector<MeasuredRun>& runs) {
  std::vector<MeasuredRun> found;
  std::copy_if(runs.begin(), runs.end(), std::back_inserter(found), [](const auto& run) { return run.seconds > 0; });
  return found;
}

}  // namespace

Result<std::vector<MeasuredRun>> parse_measured_runs(std::string_view text, const std::string& file,
                                                     const MeasuredRun& other) {
  std::vector<MeasuredRun> runs;
  MeasuredRun run;
  int devices = 0;
  RunTable table{
      .columns = parallel_plan_keys(),
      .begin = [&] { run = other, devices = 0; },
      .set = [&](const std::string& column, const std::string& cell) { return set_cell(run, devices, column, cell); },
      .end = [&](double seconds) -> Status {
        run.seconds = seconds;
        TUTTI_TRY(check_run(run));
        if (devices != 0 && devices != run.plan.devices())
          return invalid_argument(fmt::format("{} devices, and tp x cp x pp x dp is {}", devices, run.plan.devices()));
        runs.push_back(run);
        return {};
      }};
  table.columns.insert(table.columns.end(), model_columns().begin(), model_columns().end());
  TUTTI_TRY(read_run_table(text, file, table));
  return runs;
}

double predict(const MeasuredRun& run, const Cluster& cluster, const TrainingRuntime& runtime) {
  return predictions({run}, cluster, runtime, true)[0];
}

Agreement compare(const std::vector<MeasuredRun>& runs, const Cluster& cluster, const TrainingRuntime& runtime,
                  double memory) {
  const std::vector<double> predicted = predictions(ended(runs), cluster, runtime, true);
  std::vector<ComparedRun> compared;
  auto next = predicted.begin();
  for (const MeasuredRun& run : runs) {
    const int microbatches = run.plan.microbatches(run.global_batch);
    const int fullest = fullest_rank(run.model, run.plan, runtime, microbatches);
    compared.push_back({.group = group_of(run),
                        .predicted = run.seconds > 0 ? *next++ : 0,
                        .measured = run.seconds,
                        .fits = memory_of_rank(run.model, run.plan, runtime, microbatches, fullest).total() <= memory});
  }
  return agreement_of(compared, kLeastGroup);
}

Cluster calibrated(const std::vector<MeasuredRun>& runs, const Cluster& cluster, const TrainingRuntime& runtime) {
  const std::vector<MeasuredRun> fitted = ended(runs);
  std::vector<double> measured;
  for (const MeasuredRun& run : fitted) measured.push_back(run.seconds);
  return calibrated(cluster, measured, [&](const Cluster& one) { return predictions(fitted, one, runtime, false); });
}

}  // namespace tutti::planning
