#pragma once
// Steps that were measured: read from a table, compared with what the planner predicts, and used to calibrate the
// figures of a cluster.
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/planning/training/cluster.h"
#include "tutti/planning/training/parallel_plan.h"
#include "tutti/planning/training/training_runtime.h"
#include "tutti/planning/transformer_config.h"

namespace tutti::planning {

struct MeasuredRun {
  TransformerConfig model;
  ParallelPlan plan;
  int global_batch = 0;
  double seconds = 0;  // of a step; 0: the run failed, for want of memory
};

// A table with commas, whose first line that is no comment (#) names the columns: tp, cp, pp, dp, mbs, sp, schedule,
// chunks, zero, recompute, overlap (parts of a plan), gbs, hidden, heads, layers, seq, vocab, and step_s or step_ms, in
// which "failed" is a run without a time. What the table lacks is that of `other`. Errors begin with `file` and the
// line.
Result<std::vector<MeasuredRun>> parse_measured_runs(std::string_view text, const std::string& file,
                                                     const MeasuredRun& other);

struct Agreement {
  int runs = 0;
  double mean_error = 0, median_error = 0;  // of the predicted steps, as shares
  double tau = 0;                           // Kendall's tau-b of measured and predicted steps
  // Groups of at least five plans for one model, batch and number of devices. Regret: how much slower the plan is that
  // the planner would take than the fastest.
  int groups = 0;
  double mean_regret = 0, worst_regret = 0;
  int failed = 0, failed_foreseen = 0;  // runs that failed, and those of them that do not fit by the planner
  int misjudged = 0;                    // runs that ended, and do not fit by the planner
};
// `memory`: bytes that a rank may use. `cluster`: its number of nodes is that of each run.
Agreement compare(const std::vector<MeasuredRun>& runs, const Cluster& cluster, const TrainingRuntime& runtime,
                  double memory);
// What the planner predicts for a run, in seconds.
double predict(const MeasuredRun& run, const Cluster& cluster, const TrainingRuntime& runtime);

// The cluster with other figures, by at most a factor of three each, so that the mean absolute error of the logarithms
// of the steps is least: share, product_start, stream_bandwidth and launch of the device, start and bandwidths of the
// network. None becomes better than its limit: a share of 1.
Cluster calibrated(const std::vector<MeasuredRun>& runs, const Cluster& cluster, const TrainingRuntime& runtime);

}  // namespace tutti::planning
