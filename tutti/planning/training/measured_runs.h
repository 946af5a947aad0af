#pragma once
// Measured steps of transformers: read from a table, compared with what the planner predicts, and used to calibrate the
// figures of a cluster.
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/planning/training/agreement.h"
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
// chunks, first, last, zero, recompute, overlap (parts of a plan), gbs, hidden, heads, layers, seq, vocab, devices, and
// step_s or step_ms, in which "failed" is a run without a time. What the table lacks is that of `other`. Errors begin
// with `file` and the line.
Result<std::vector<MeasuredRun>> parse_measured_runs(std::string_view text, const std::string& file,
                                                     const MeasuredRun& other);

// Groups are at least five plans for one model, batch and number of devices. `memory`: bytes that a rank may use.
// `cluster`: its number of nodes is that of each run.
Agreement compare(const std::vector<MeasuredRun>& runs, const Cluster& cluster, const TrainingRuntime& runtime,
                  double memory);
// What the planner predicts for a run, in seconds.
double predict(const MeasuredRun& run, const Cluster& cluster, const TrainingRuntime& runtime);

// The cluster with figures that fit the runs.
Cluster calibrated(const std::vector<MeasuredRun>& runs, const Cluster& cluster, const TrainingRuntime& runtime);

}  // namespace tutti::planning
