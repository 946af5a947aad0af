#pragma once
// Clusters of published machines. Each figure has its source in cluster_presets.cc. A cluster of yours that was
// measured predicts better: `tutti plan measure`.
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/planning/training/cluster.h"

namespace tutti {

// "a100-sxm", "h100-sxm", "h200-sxm", "v100-p3", "cpu"
std::vector<std::string> cluster_preset_names();
// kInvalidArgument: there is no such preset; the error names the nearest.
Result<Cluster> cluster_preset(const std::string& name, int nodes = 1);

// What an option --cluster names: a preset ("h100-sxm"), a number of its nodes ("h100-sxm:16"), or a file. A name with
// a
// '/' or a '.' is a file.
Result<Cluster> find_cluster(const std::string& given);

}  // namespace tutti
