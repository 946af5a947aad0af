#pragma once
// How a model that is a chain of blocks is divided among ranks: consecutive blocks form the stages of a pipeline, and
// each stage has replicas that average their gradients. Pure arithmetic over measured costs: parallel/parallelize.h
// measures a model and runs a plan.
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/planning/stage_layers.h"

namespace tutti {

// Seconds of a piece of work on `rows` samples.
struct RowTime {
  double start = 0, per_row = 0;
  double of(double rows) const { return start + per_row * rows; }
};

// A block, on one rank. A tensor that several blocks share counts in the first of them.
struct BlockCost {
  RowTime forward, backward;
  double weight_bytes = 0;   // of all its parameters and buffers
  double trained_bytes = 0;  // of the parameters that are trained
  double kept_bytes = 0;     // per sample, from its forward to its backward
  double output_bytes = 0;   // per sample
};

struct BlockChain {
  std::vector<BlockCost> blocks;  // the loss belongs to the last one
  double sum_start = 0;           // seconds of an all_reduce besides its bytes
  double sum_bandwidth = 0;       // bytes per second that each rank sends in an all_reduce; 0: no time
  double message_start = 0, message_bandwidth = 0;  // of a message from stage to stage, likewise
  double step_seconds = 0;                          // of the optimizer, per byte of trained parameters
  double state_bytes = 0;                           // of the optimizer, per byte of trained parameters
  bool can_shard = true;                            // whether the optimizer can be sharded
  int least_rows = 1;                               // of a microbatch
  std::vector<LayerRange> together{};               // blocks that must not be cut apart, since they share parameters
};

struct BlockPlan {
  int replicas = 1;
  int microbatches = 1;                 // of each replica, one after another
  bool shards_optimizer = false;        // over the replicas of a stage (ZeRO 1)
  std::vector<LayerRange> stages = {};  // the blocks of each; one stage: no pipeline
  int ranks() const { return replicas * int(stages.size()); }
  bool operator==(const BlockPlan&) const = default;
};
// "2 stages (blocks 0-4, 5-7) x 3 replicas, 4 microbatches, sharded optimizer"
std::string to_string(const BlockPlan& plan);
// kInvalidArgument where the plan does not divide the blocks, the ranks or the batch.
Status check(const BlockPlan& plan, int blocks, int ranks, std::int64_t batch);

struct RankedBlockPlan {
  BlockPlan plan;
  double pipeline = 0;  // seconds of a step: forwards, backwards and messages
  double averages = 0;  // and of the averages of the gradients
  double optimizer = 0;
  // Of the fullest rank: weights (every rank has all), gradients and their buckets, optimizer state, activations.
  double bytes = 0;
  double seconds() const { return pipeline + averages + optimizer; }
};

struct BlockPlanOptions {
  int ranks = 1;
  std::int64_t batch = 1;  // samples of a step, over all replicas
  double memory = 0;       // bytes that a rank may use; 0: no limit
};

// Returns the plans that fit, the fastest first. Of two equally fast plans, the one with fewer stages comes first, then
// the one with fewer microbatches. Where there are at most 200 ways to cut the blocks into so many stages, all are
// tried. Else a lower bound skips plans that cannot be faster than the first one. After 4,000 plans that it does not
// skip, the first one is the best so far. kInvalidArgument: the options make no sense, or no plan divides the
// batch. kLimit: nothing fits; the sentence names the plan that needs least.
Result<std::vector<RankedBlockPlan>> plan_blocks(const BlockChain& chain, const BlockPlanOptions& options);
// Returns time and memory of one plan, for which check() is ok.
RankedBlockPlan evaluate(const BlockChain& chain, const BlockPlan& plan, std::int64_t batch);

}  // namespace tutti
