#pragma once
// What `tutti plan train` knows and says: the plans of a training, as tables for people and as JSON.
#include <cstdint>
#include <optional>
#include <string>

#include "tutti/planning/training/replica_plan.h"

namespace tutti::cli {

struct TrainQuestion {
  std::string model_name;  // "gpt", or that of a preset
  TransformerConfig model;
  std::optional<ReplicaModel> replica;  // in place of `model`: of --model cnn and mlp
  std::string optimizer;                // of `replica`
  Cluster cluster;
  int global_batch = 0;
  PlanOptions options;
};

std::string to_text(const TrainQuestion& question, const TrainingPlans& plans);
std::string to_json(const TrainQuestion& question, const TrainingPlans& plans);

// --svg, of a transformer: the memory of each pipeline rank, the ranks by node, and the pipeline.
std::string to_svg(const TrainQuestion& question, const RankedPlan& plan, double limit);

// --why: one plan beside the best one. `refusal`: why the runtime cannot run it; empty: it can.
std::string why_text(const TrainQuestion& question, const RankedPlan& best, const RankedPlan& other, double limit,
                     const std::string& refusal);
std::string why_json(const TrainQuestion& question, const RankedPlan& best, const RankedPlan& other, double limit,
                     const std::string& refusal);

// "1 run", "2 runs".
std::string counted(std::int64_t count, const char* noun);

}  // namespace tutti::cli
