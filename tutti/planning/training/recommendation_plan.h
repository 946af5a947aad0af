#pragma once
// How a recommendation model (DLRM, arXiv:1906.00091) is trained on a cluster of CPUs: MLPs are on every rank, and
// embedding tables are divided among the ranks. The planner chooses the placement of tables by the time of a step on
// this cluster. The placements are those of tables/planner.h, and one that counts what the network carries.
//
//   const auto plans = plan_recommendation(model, cluster, 2048, {}).or_throw();
//   plans.best.at(0).name  // "auto", as train_dlrm --placement takes it
#include <string>
#include <vector>

#include "tutti/planning/tables/planner.h"
#include "tutti/planning/training/replica_plan.h"

namespace tutti {

struct RecommendationModel {
  ReplicaModel bottom, top;  // top: with the interaction as its first layer
  std::vector<TableSpec> tables;
  double pairs = 0, dim = 0;  // of a sample: pairs of vectors whose products are taken, and numbers of a vector
  double number = 4;          // bytes of a number
  double dense_state = 0;     // numbers that the optimizer keeps of each parameter of the MLPs
  std::int64_t state_numbers_a_column = 0, state_numbers_a_row = 0;  // and of the tables: PlannerOptions
  double table_numbers() const;                                      // of all rows
  double pooled_numbers() const;                                     // of a sample: the pooled rows of all tables
};

// The layers of the two MLPs, with the interaction of `vectors` vectors of `dim` numbers between them, of which the
// products of all pairs are taken (dot) or which are put side by side. `top` begins with the width of the interaction:
// of dot, `dim` and the number of pairs.
void set_dense_layers(RecommendationModel& model, std::span<const std::int64_t> bottom, std::int64_t vectors,
                      std::int64_t dim, bool dot, std::span<const std::int64_t> top);

// Seconds; the step is their sum. A rank waits for the busiest one where rows are exchanged.
struct RecommendationTime {
  double dense = 0;      // MLPs and interaction
  double lookups = 0;    // rows that are read and pooled on the busiest rank, and put together by their readers
  double rows_out = 0;   // the exchange of pooled rows that the bottom MLP does not hide
  double rows_back = 0;  // and of their gradients
  double averages = 0;   // sums of the gradients of MLPs and of replicated tables
  double optimizer = 0;  // steps of rows, on the busiest rank, and of the MLPs
  double step() const { return dense + lookups + rows_out + rows_back + averages + optimizer; }
};

// Bytes of a rank.
struct RecommendationMemory {
  double tables = 0, table_state = 0;
  double weights = 0, gradients = 0, optimizer = 0;  // of the MLPs
  double activations = 0;                            // of the MLPs
  double rows = 0;                                   // pooled rows and their gradients, at the reader and at the owner
  double lookups = 0;                                // indices of a batch, and what sorts them
  double buffers = 0;                                // buckets of gradients
  double total() const {
    return tables + table_state + weights + gradients + optimizer + activations + rows + lookups + buffers;
  }
};

struct RankedPlacement {
  std::string name;  // one of placement_names(), or kNetworkPlacement
  TablePlacement placement;
  RecommendationTime time;
  std::vector<RecommendationMemory> memory;  // by rank
  int fullest = 0;
  double imbalance = 1;  // of the bytes that tables move: the busiest rank over the mean
  double lookups = 0;    // rows, or parts of them, that all ranks look up for a batch
  double most_memory() const { return memory.at(std::size_t(fullest)).total(); }
};

// Placed by plan_tables() with the bytes that this network carries, weighed by how much slower it is than memory.
inline constexpr const char* kNetworkPlacement = "network";

struct RecommendationOptions {
  std::vector<std::string> placements{};  // that may be chosen; empty: all
  PlanGoal goal = PlanGoal::kTime;
  double memory = 0;          // bytes that a rank may use; 0: usable_memory()
  bool shares_memory = true;  // ranks of one node read each other's memory (no: --no-shared-tables)
  double wire = 1;            // share of the bytes of a row that is sent (--wire)
};

struct RecommendationPlans {
  double limit = 0;
  std::vector<RankedPlacement> best;   // that fit, the best first; of equals, the first of placement_names()
  std::vector<RankedPlacement> unfit;  // that do not fit, the smallest first
};

// kInvalidArgument for a cluster, a batch or a model that cannot be planned for; kUnsupported for devices that are no
// CPUs, because tables are in the memory of the host. Nodes may differ in their number of devices. Where nothing fits
// the answer is ok.
Result<RecommendationPlans> plan_recommendation(const RecommendationModel& model, const Cluster& cluster, int batch,
                                                const RecommendationOptions& options);
// One placement, for which check(placement, model.tables) is ok.
RankedPlacement evaluate(const RecommendationModel& model, const Cluster& cluster, int batch,
                         const RecommendationOptions& options, const std::string& name,
                         const TablePlacement& placement);

namespace planning {

// The parts of a step with their names: "dense compute", "lookups", "rows out", ...
std::vector<std::pair<const char*, double>> parts_of(const RecommendationTime& time);
std::vector<std::pair<const char*, double>> parts_of(const RecommendationMemory& memory);
// "+45.0 %, 4.5 ms more: 5 ms more in rows out: its ranks send each other 12 MiB a batch"
std::string why_slower(const RankedPlacement& best, const RankedPlacement& other);
// "needs 9.3 GiB of 7.2 GiB, 8 GiB of them tables; more ranks would help"
std::string why_not_fit(const RankedPlacement& plan, double limit);

}  // namespace planning
}  // namespace tutti
