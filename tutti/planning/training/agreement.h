#pragma once
// How well predicted steps agree with measured ones, and the figures of a cluster with which they agree best; whatever
// was trained.
#include <functional>
#include <string>
#include <vector>

#include "tutti/planning/training/cluster.h"

namespace tutti::planning {

struct ComparedRun {
  std::string group;                   // of runs that differ in their plans alone
  double predicted = 0, measured = 0;  // seconds of a step; measured 0: the run failed, for want of memory
  bool fits = true;                    // by the planner
};

struct Agreement {
  int runs = 0;
  double mean_error = 0, median_error = 0;  // of the predicted steps, as shares
  double tau = 0;                           // Kendall's tau-b of measured and predicted steps
  // Groups of at least `least_group` plans. Regret: how much slower the plan is that the planner would take than the
  // fastest.
  int least_group = 0, groups = 0;
  double mean_regret = 0, worst_regret = 0;
  int failed = 0, failed_foreseen = 0;  // runs that failed, and those of them that do not fit by the planner
  int misjudged = 0;                    // runs that ended, and do not fit by the planner
};
Agreement agreement_of(const std::vector<ComparedRun>& runs, int least_group);

// The cluster with other figures, by at most a factor of three each, so that the mean absolute error of the logarithms
// of the steps is least: share, product_start, stream_bandwidth, function and launch of the device, start and
// bandwidths of the network. None becomes better than its limit: a share of 1. `measured` and what `predict` returns
// for a cluster: seconds of the same runs.
Cluster calibrated(const Cluster& cluster, const std::vector<double>& measured,
                   const std::function<std::vector<double>(const Cluster&)>& predict);

}  // namespace tutti::planning
