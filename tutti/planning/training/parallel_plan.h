#pragma once
// How a training of a transformer is divided among devices, as a value: what the planner chooses.
#include <algorithm>
#include <compare>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/planning/schedules/schedule.h"
#include "tutti/planning/stage_layers.h"

namespace tutti {

// What the ranks that average gradients divide among them (Rajbhandari et al. 2020, arXiv:1910.02054).
enum class ZeroStage {
  kNone,
  kOptimizer,  // ZeRO-1: the optimizer state
  kGradients,  // ZeRO-2: and the gradients
  kWeights,    // ZeRO-3, FSDP: and the weights
};

enum class Recomputation {
  kNone,
  kSelective,  // of attention: scores and their dropout are recomputed (Korthikanti et al. 2022, arXiv:2205.05198)
  kFull,       // of whole layers: only their inputs are kept
};

struct ParallelPlan {
  int tensor = 1, context = 1, pipeline = 1, data = 1;
  int micro_batch = 1;  // samples of a replica that are computed at once
  ScheduleKind schedule = ScheduleKind::kOneForwardOneBackward;
  int chunks = 1;  // of a pipeline rank
  EndLayers ends;  // of the first and the last stage
  bool sequence_parallel = false;
  ZeroStage zero = ZeroStage::kNone;
  Recomputation recompute = Recomputation::kNone;
  int recomputed_layers = 0;  // kFull: so many layers of each chunk; 0: all
  bool overlap_gradients = false;

  // At most the largest int.
  int devices() const {
    return int(std::min(double(std::numeric_limits<int>::max()), double(tensor) * context * pipeline * data));
  }
  // Ranks that average the gradients of a weight, and that ZeroStage divides among.
  int replicas() const { return context * data; }
  int stages() const { return pipeline * chunks; }
  // The global batch must be a multiple of it.
  std::int64_t batch_unit() const { return std::int64_t(data) * micro_batch; }
  // Microbatches of a step on each replica.
  int microbatches(int global_batch) const { return global_batch / data / micro_batch; }
  auto operator<=>(const ParallelPlan&) const = default;
};

// "tp=4,sp,pp=2,schedule=interleaved,chunks=3,dp=8,mbs=2,zero=1,recompute=full". Axes of size 1 are omitted, but for
// mbs, and so is a schedule of 1f1b. "recompute=2": two layers of each chunk. "first=3,last=1": layers of the first and
// the last stage.
std::string to_string(const ParallelPlan& plan);
// Reads such a text, in any order; "first=even" and "last=even", too, for a stage with as many layers as the others.
// kUsage for an unknown key, with the nearest one, for a wrong value, and for a key that is given twice.
Result<ParallelPlan> parse_parallel_plan(std::string_view text);
// Sets one part of such a text, as "tp=4" or "sp", in a plan.
Status set_in_plan(ParallelPlan& plan, std::string_view part);
// Sets several; kUsage for a key that is given twice.
Status set_in_plan(ParallelPlan& plan, const std::vector<std::string>& parts);
const std::vector<std::string>& parallel_plan_keys();
// The number of axes that a plan uses: of plans that are equally fast the one with fewest is chosen.
int axes_of(const ParallelPlan& plan);

}  // namespace tutti
