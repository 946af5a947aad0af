#pragma once
// `tutti plan train --model dlrm`: the placement of a recommendation model's tables, by the time of a step.
#include <string>
#include <vector>

#include "apps/tutti/plan_train_runs.h"
#include "tutti/models/dlrm/options.h"
#include "tutti/planning/training/recommendation_plan.h"

namespace tutti::cli {

struct DlrmQuestion {
  dlrm::Options options;                   // the model
  std::vector<std::string> model_options;  // as they were given, for the command line
  std::string cluster_name;                // as it was given
  Cluster cluster;
  int global_batch = 0;  // 0: the table of runs has it
  RecommendationOptions planning;
  int best = 10;
  bool json = false;
  std::string why;                      // compare this placement with the best one; empty: no
  std::string output;                   // write the best placement to this file, for --plan; empty: do not
  std::vector<std::string> fix, allow;  // --fix placement=NAME, --allow NAME,NAME
  RunsQuestion runs;
};

// Prints the answer. kLimit where no placement fits.
Status plan_dlrm(DlrmQuestion question);

}  // namespace tutti::cli
