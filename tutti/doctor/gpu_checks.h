#pragma once
// Whether the GPUs of a host and what lies between them suit a job. Pure functions, as in checks.h.
#include <vector>

#include "tutti/doctor/gpus.h"
#include "tutti/doctor/report.h"

namespace tutti::doctor {

struct GpuJob {
  int ranks = 1, nodes = 1;     // of this host; hosts
  bool has_gpus = false;        // this process may open some
  std::vector<int> visible;     // places in the survey of the GPUs that ranks take in turn
  std::vector<int> core_nodes;  // NUMA nodes with a core that this process may use; empty: not known
};

// A line for each GPU ("gpu 0"), and lines about what is odd. Nothing on a host without GPUs.
std::vector<Finding> check_gpus(const GpuSurvey& survey, const GpuJob& job);

}  // namespace tutti::doctor
