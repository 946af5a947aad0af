#pragma once
// Measured steps of a recommendation model: read from a table, compared with what the planner predicts, and used to
// calibrate the figures of a cluster.
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/planning/training/agreement.h"
#include "tutti/planning/training/recommendation_plan.h"

namespace tutti::planning {

struct MeasuredPlacement {
  std::string name;  // one of placement_names(), or kNetworkPlacement
  int devices = 0, global_batch = 0;
  double seconds = 0;             // of a step; 0: the run failed, for want of memory
  TablePlacement placement = {};  // what the name stands for
};

// What a table of runs is about, besides its columns.
struct PlacementQuestion {
  RecommendationModel model;
  RecommendationOptions options;  // of which `placements` and `goal` do not count; memory: bytes that a rank may use
};

// A table as run_table.h reads it, with the columns placement, devices, gbs, and step_s or step_ms. What it lacks is
// that of `other`; of whose placement only the name counts. The placement kNetworkPlacement is that of `cluster`, whose
// number of nodes is that of each run.
Result<std::vector<MeasuredPlacement>> parse_measured_placements(std::string_view text, const std::string& file,
                                                                 const PlacementQuestion& question,
                                                                 const Cluster& cluster,
                                                                 const MeasuredPlacement& other);

// Groups are at least two placements for one batch and number of devices.
Agreement compare(const std::vector<MeasuredPlacement>& runs, const PlacementQuestion& question,
                  const Cluster& cluster);
// The cluster with figures that fit the runs.
Cluster calibrated(const std::vector<MeasuredPlacement>& runs, const PlacementQuestion& question,
                   const Cluster& cluster);

}  // namespace tutti::planning
