#include "tutti/planning/training/measured_runs.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <tuple>

#include "tutti/base/text.h"
#include "tutti/planning/training/memory.h"
#include "tutti/planning/training/step_time.h"

namespace tutti::planning {
namespace {

constexpr int kLeastGroup = 5;

const std::vector<std::string>& model_columns() {
  static const std::vector<std::string> columns = {"devices", "gbs",   "hidden", "heads",  "layers",
                                                   "seq",     "vocab", "step_s", "step_ms"};
  return columns;
}

Error at(const std::string& file, int line, std::string detail, std::string hint = {}) {
  return invalid_argument(fmt::format("{}:{}: {}", file, line, detail), std::move(hint));
}

// Sets one cell in a run; the message says what is wrong with it.
std::string set_cell(MeasuredRun& run, const std::string& column, const std::string& cell) {
  if (std::find(model_columns().begin(), model_columns().end(), column) == model_columns().end()) {
    const Status status = set_in_plan(run.plan, column + "=" + cell);
    return status.ok() ? std::string() : status.error().detail;
  }
  if (column == "step_s" || column == "step_ms") {
    if (cell == "failed") return {};
    const auto seconds = parse_double(cell);
    if (!seconds || *seconds <= 0) return fmt::format("{} needs a time above 0 or 'failed', not '{}'", column, cell);
    run.seconds = column == "step_ms" ? *seconds / 1e3 : *seconds;
    return {};
  }
  const auto number = parse_int(cell);
  if (!number || *number < 1 || *number > 1 << 30)
    return fmt::format("{} needs a whole number above 0, not '{}'", column, cell);
  TransformerConfig& model = run.model;
  const int value = int(*number);
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
  TUTTI_TRY(check(run.model, {plan.tensor, plan.pipeline, plan.chunks, plan.context, plan.sequence_parallel}));
  if (run.global_batch < 1) return invalid_argument("there is no global batch", "a column gbs, or --global-batch");
  if (run.global_batch % (plan.data * plan.micro_batch) != 0)
    return invalid_argument(fmt::format("a batch of {} cannot be divided by dp {} x mbs {}", run.global_batch,
                                        plan.data, plan.micro_batch));
  return as_result([&] {
           (void)stages_with_ends(run.model.layers, plan.stages(), plan.ends);
           return make_schedule(plan.schedule, {.ranks = plan.pipeline, .microbatches = 1, .chunks = plan.chunks});
         })
      .status();
}

// The first `devices` devices of a cluster; where it has fewer, more nodes of its last kind.
Cluster sized(Cluster cluster, int devices) {
  std::vector<ClusterNodes> nodes;
  cluster.nodes.back().count = devices;  // at least as many as are needed
  for (ClusterNodes same : cluster.nodes) {
    const int whole = std::min(same.count, devices / same.devices);
    const bool is_last = whole < same.count;
    devices -= whole * same.devices;
    if (whole > 0) nodes.push_back(same), nodes.back().count = whole;
    if (!is_last) continue;
    same.count = 1;
    same.devices = devices;  // of a node that is not used as a whole
    if (devices > 0) nodes.push_back(same);
    break;
  }
  cluster.nodes = nodes;
  return cluster;
}

// Runs of one model and batch, which share a StepModel.
using GroupKey = std::tuple<int, int, int, int, int, int, int>;
GroupKey key_of(const MeasuredRun& run) {
  const TransformerConfig& model = run.model;
  return {model.hidden,     model.heads,      model.layers,      model.sequence_length,
          model.vocabulary, run.global_batch, run.plan.devices()};
}

std::vector<double> predictions(const std::vector<MeasuredRun>& runs, const Cluster& cluster,
                                const TrainingRuntime& runtime, bool exactly) {
  std::map<GroupKey, StepModel> models;
  std::vector<double> steps;
  for (const MeasuredRun& run : runs) {
    auto found = models.find(key_of(run));
    if (found == models.end())
      found = models.try_emplace(key_of(run), run.model, sized(cluster, run.plan.devices()), runtime, run.global_batch)
                  .first;
    steps.push_back(exactly ? found->second.exact_step(run.plan) : found->second.bounds(run.plan).estimate);
  }
  return steps;
}

double kendall_tau(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0, ties_x = 0, ties_y = 0, pairs = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const double a = x[i] - x[j], b = y[i] - y[j];
      sum += a * b > 0 ? 1 : a * b < 0 ? -1 : 0;
      ties_x += a == 0, ties_y += b == 0, ++pairs;
    }
  const double scale = std::sqrt((pairs - ties_x) * (pairs - ties_y));
  return scale > 0 ? sum / scale : 0;
}

}  // namespace

Result<std::vector<MeasuredRun>> parse_measured_runs(std::string_view text, const std::string& file,
                                                     const MeasuredRun& other) {
  std::vector<std::string> columns, known = parallel_plan_keys();
  known.insert(known.end(), model_columns().begin(), model_columns().end());
  std::vector<MeasuredRun> runs;
  int number = 0;
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";  // of tables that spreadsheets write
  if (text.substr(0, kByteOrderMark.size()) == kByteOrderMark) text.remove_prefix(kByteOrderMark.size());
  for (const std::string& line : split(text, '\n')) {
    ++number;
    const std::string_view trimmed = trim(line);
    if (trimmed.empty() || trimmed.front() == '#') continue;
    std::vector<std::string> cells;
    for (const std::string& cell : split(trimmed, ',')) cells.emplace_back(trim(cell));
    if (columns.empty()) {
      if (cells.size() == 1 && cells[0].find_first_of(";\t") != std::string::npos)
        return at(file, number, "cells are separated by commas, and there are none");
      for (const std::string& column : cells)
        if (std::count(cells.begin(), cells.end(), column) > 1)
          return at(file, number, "there are two columns '" + column + "'");
      for (const std::string& column : cells)
        if (std::find(known.begin(), known.end(), column) == known.end())
          return at(file, number, "there is no column '" + column + "'",
                    did_you_mean(nearest(column, known), "known: " + join(known, ", ")));
      columns = cells;
      const auto has = [&](const char* name) { return std::count(cells.begin(), cells.end(), name) == 1; };
      if (has("step_s") == has("step_ms"))
        return at(file, number, "one column must be the measured time", "step_s in seconds, or step_ms");
      continue;
    }
    if (cells.size() != columns.size())
      return at(file, number, fmt::format("{} cells, expected {}", cells.size(), columns.size()));
    MeasuredRun run = other;
    int devices = 0;
    for (std::size_t i = 0; i < cells.size(); ++i) {
      if (std::string wrong = set_cell(run, columns[i], cells[i]); !wrong.empty()) return at(file, number, wrong);
      if (columns[i] == "devices") devices = int(*parse_int(cells[i]));
    }
    if (const Status status = check_run(run); !status.ok())
      return at(file, number, status.error().detail, status.error().hint);
    if (devices != 0 && devices != run.plan.devices())
      return at(file, number, fmt::format("{} devices, and tp x cp x pp x dp is {}", devices, run.plan.devices()));
    runs.push_back(run);
  }
  if (runs.empty()) return invalid_argument(file + ": there are no runs");
  return runs;
}

double predict(const MeasuredRun& run, const Cluster& cluster, const TrainingRuntime& runtime) {
  return predictions({run}, cluster, runtime, true)[0];
}

Agreement compare(const std::vector<MeasuredRun>& runs, const Cluster& cluster, const TrainingRuntime& runtime,
                  double memory) {
  Agreement agreement;
  std::vector<MeasuredRun> ended;
  for (const MeasuredRun& run : runs) {
    const int microbatches = run.plan.microbatches(run.global_batch);
    const int fullest = fullest_rank(run.model, run.plan, runtime, microbatches);
    const bool fits = memory_of_rank(run.model, run.plan, runtime, microbatches, fullest).total() <= memory;
    if (run.seconds > 0) {
      ended.push_back(run);
      agreement.misjudged += !fits;
    } else {
      ++agreement.failed;
      agreement.failed_foreseen += !fits;
    }
  }
  agreement.runs = int(ended.size());
  if (ended.empty()) return agreement;
  const std::vector<double> predicted = predictions(ended, cluster, runtime, true);
  std::vector<double> measured, errors;
  std::map<GroupKey, std::vector<std::pair<double, double>>> groups;  // predicted, measured
  for (std::size_t i = 0; i < ended.size(); ++i) {
    measured.push_back(ended[i].seconds);
    errors.push_back(std::abs(predicted[i] / measured[i] - 1));
    agreement.mean_error += errors.back() / double(ended.size());
    groups[key_of(ended[i])].emplace_back(predicted[i], measured[i]);
  }
  agreement.median_error = median(errors);
  agreement.tau = kendall_tau(measured, predicted);
  for (const auto& [key, steps] : groups) {
    if (int(steps.size()) < kLeastGroup) continue;
    const double picked = std::min_element(steps.begin(), steps.end())->second;
    double least = picked;
    for (const auto& [prediction, measurement] : steps) least = std::min(least, measurement);
    ++agreement.groups;
    agreement.mean_regret += picked / least - 1;
    agreement.worst_regret = std::max(agreement.worst_regret, picked / least - 1);
  }
  if (agreement.groups > 0) agreement.mean_regret /= agreement.groups;
  return agreement;
}

Cluster calibrated(const std::vector<MeasuredRun>& runs, const Cluster& cluster, const TrainingRuntime& runtime) {
  constexpr double kFurthest = 3, kFirstStep = 1.5, kLastStep = 1.01;
  std::vector<MeasuredRun> ended;
  for (const MeasuredRun& run : runs)
    if (run.seconds > 0) ended.push_back(run);
  const auto figures = [](Cluster& one) {
    return std::vector<double*>{
        &one.device.share,  &one.device.product_start, &one.device.stream_bandwidth,  &one.device.function,
        &one.device.launch, &one.network.start,        &one.network.inside.bandwidth, &one.network.between.bandwidth};
  };
  const auto loss = [&](const Cluster& one) {
    const std::vector<double> predicted = predictions(ended, one, runtime, false);
    double sum = 0;
    for (std::size_t i = 0; i < ended.size(); ++i) sum += std::abs(std::log(predicted[i] / ended[i].seconds));
    return sum / double(std::max<std::size_t>(ended.size(), 1));
  };
  // One figure after another is moved by a factor, as long as that helps, and then by smaller ones.
  Cluster best = cluster, start = cluster;
  double least = loss(best);
  for (double step = kFirstStep; step > kLastStep;) {
    bool moved = false;
    for (std::size_t i = 0; i < figures(best).size(); ++i)
      for (const double factor : {step, 1 / step}) {
        Cluster next = best;
        double& figure = *figures(next)[i];
        const double first = *figures(start)[i];
        figure = std::clamp(figure * factor, first / kFurthest, first * kFurthest);
        if (i == 0) figure = std::min(figure, 1.0);
        if (const double error = loss(next); error < least * (1 - 1e-6)) {
          least = error;
          best = next;
          moved = true;
        }
      }
    if (!moved) step = std::sqrt(step);
  }
  return best;
}

}  // namespace tutti::planning
