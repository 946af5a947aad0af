#pragma once
// The work of one rank for one microbatch, layer by layer: products of matrices, element-wise operations, and what
// tensor and context parallel ranks exchange. Pure counts: device_time.h makes seconds of them.
#include <vector>

#include "tutti/planning/training/device_time.h"
#include "tutti/planning/training/parallel_plan.h"
#include "tutti/planning/training/training_runtime.h"
#include "tutti/planning/transformer_config.h"

namespace tutti::planning {

// A product of the forward pass. Backward has two more, the gradients of its two operands.
struct ProductWork {
  double rows, outputs, inputs;
  double batch = 1;
  double share = 1;               // of it that is computed
  double times = 1;               // so often, one after another
  bool again = false;             // backward computes it once more
  bool has_weights = true;        // one operand is a weight; else both are activations, as in attention
  bool hides_tensor_sum = false;  // the sum of its input's gradient passes while that of its weight is computed
};

struct LayerWork {
  std::vector<ProductWork> products;
  ElementWork forward, backward;
  double score_bytes = 0;    // of forward.bytes: scores of attention, which selective recomputation repeats
  double tensor_sums = 0;    // all_reduces over tensor ranks in forward, and as many in backward
  double tensor_bytes = 0;   // of each
  double context_hops = 0;   // messages around the ring of context ranks in forward
  double context_bytes = 0;  // of each; twice as many in backward
};

struct LayerChain {
  LayerWork embedding, block, head;
};

// config.layers blocks between embedding and head. Of the plan only tensor, context, sequence_parallel and micro_batch
// count. `on_cores`: the devices are cores of a CPU, for which no kernels are fused.
LayerChain transformer_chain(const TransformerConfig& config, const ParallelPlan& plan, const TrainingRuntime& runtime,
                             bool on_cores);

}  // namespace tutti::planning
