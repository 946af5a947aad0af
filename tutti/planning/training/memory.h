#pragma once
// The memory that a training needs on each rank, in bytes, in closed form. tests/parity/activation_memory_test.cc
// compares those of Tutti with counted bytes.
#include "tutti/planning/training/parallel_plan.h"
#include "tutti/planning/training/training_runtime.h"
#include "tutti/planning/transformer_config.h"

namespace tutti::planning {

// Of one rank. A rank of a pipeline stands for all tensor, context and data ranks of its stage, which are alike.
struct RankMemory {
  double weights = 0, gradients = 0, optimizer = 0;
  double activations = 0;  // kept for backward, of all microbatches in flight
  double head = 0;         // of the last stage: input of the last norm and of the head, and the logits
  double working = 0;      // of the layer at work: its recomputed activations, gradients of its activations
  double buffers = 0;      // messages between stages, gathered weights, what the process reserves
  double total() const { return weights + gradients + optimizer + activations + head + working + buffers; }
};

// What a rank has of each parameter, if `ranks` ranks share as `zero` says.
ParameterBytes divided(const ParameterBytes& bytes, ZeroStage zero, int ranks);
// Parameters on a rank of the pipeline, of one tensor rank, before ZeroStage divides them.
double parameters_of_rank(const TransformerConfig& config, const ParallelPlan& plan, int pipeline_rank);
// Of one layer, of one tensor rank.
double parameters_of_layer(const TransformerConfig& config, int tensor);
// Layers of all chunks of a pipeline rank.
int layers_of_rank(int layers, const ParallelPlan& plan, int pipeline_rank);

// Bytes that a layer keeps of one microbatch until its backward; `recompute` in place of plan.recompute.
double activations_of_layer(const TransformerConfig& config, const ParallelPlan& plan, const TrainingRuntime& runtime,
                            Recomputation recompute);
// The most pairs of a microbatch and a chunk whose activations a rank keeps at once: Timeline::most_kept() in closed
// form, and at most that of a full pipeline for zb-v with fewer than 2 p - 1 microbatches.
int chunks_in_flight(const ParallelPlan& plan, int microbatches, int pipeline_rank);
// Bytes of the head of one microbatch.
double activations_of_head(const TransformerConfig& config, const ParallelPlan& plan, const TrainingRuntime& runtime);

RankMemory memory_of_rank(const TransformerConfig& config, const ParallelPlan& plan, const TrainingRuntime& runtime,
                          int microbatches, int pipeline_rank);
// The rank of the pipeline that needs most: the first or the last.
int fullest_rank(const TransformerConfig& config, const ParallelPlan& plan, const TrainingRuntime& runtime,
                 int microbatches);

}  // namespace tutti::planning
