// Element-wise work of a block, in the bytes that Megatron-LM's fused kernels of 2021 read and write for each row:
//
//   norms, dropout, additions to the residual   11 h numbers, on every tensor rank, or divided by sequence parallelism
//   activation of the MLP                       2 (fc1 + ffn) numbers, divided over the tensor ranks
//   transposes of queries, keys and values      2 qkv numbers, divided
//   softmax, mask and dropout of scores         4 numbers and a byte for each score, where scores are kept; divided
//
// in 14 kernels, 5 of them for scores. Backward moves 1.6 times as many bytes in 22 kernels. The factor was fitted to
// the measured backward passes of arXiv:2205.05198, table 4.
#include "tutti/planning/training/layer_chain.h"

namespace tutti::planning {

LayerChain transformer_chain(const TransformerConfig& config, const ParallelPlan& plan,
                             const TrainingRuntime& runtime) {
  constexpr double kBackward = 1.6, kKernels = 14, kKernelsBackward = 22;
  const double t = plan.tensor, c = plan.context, b = plan.micro_batch, s = config.sequence_length;
  const double h = config.hidden, rows = b * s / c, of_tokens = plan.sequence_parallel ? t : 1;
  const double qkv = double(config.qkv_size()), query = double(config.query_size()), fc1 = double(config.fc1_size());
  const double heads = double(config.heads) / t, e = runtime.element;
  const double causal = runtime.skips_masked ? 0.5 : 1;

  // Attention sees the keys of one context rank after another.
  LayerChain chain;
  LayerWork& block = chain.block;
  block.products = {{.rows = rows, .outputs = qkv / t, .inputs = h, .hides_tensor_sum = true},
                    {.rows = rows, .outputs = h, .inputs = query / t},
                    {.rows = rows, .outputs = fc1 / t, .inputs = h, .hides_tensor_sum = true},
                    {.rows = rows, .outputs = h, .inputs = config.ffn / t},
                    {.rows = s / c,
                     .outputs = s / c,
                     .inputs = double(config.head_size),
                     .batch = b * heads,
                     .share = causal,
                     .times = c,
                     .has_weights = false},
                    {.rows = s / c,
                     .outputs = double(config.head_size),
                     .inputs = s / c,
                     .batch = b * heads,
                     .share = causal,
                     .times = c,
                     .has_weights = false}};
  if (runtime.keeps_scores) block.streamed_scores = heads * b * s / c * s * (4 * e + 1);
  block.streamed =
      rows * (11 * h * (e + runtime.residual) / 2 / of_tokens + 2 * e * (fc1 + config.ffn) / t + 2 * e * qkv / t) +
      block.streamed_scores;
  block.operations = kKernels;
  block.streamed_backward = kBackward * block.streamed;
  block.operations_backward = kKernelsBackward;
  if (plan.tensor > 1) {
    block.tensor_sums = 2;
    block.tensor_bytes = rows * h * e;
  }
  if (plan.context > 1) {
    block.context_hops = c - 1;
    block.context_bytes = rows * 2 * double(config.key_size()) / t * e;
  }

  chain.embedding.streamed = chain.embedding.streamed_backward = 3 * rows * h * runtime.residual;
  chain.embedding.operations = chain.embedding.operations_backward = 2;

  const double outputs = config.vocabulary / t;
  chain.head.products = {{.rows = rows, .outputs = outputs, .inputs = h}};
  chain.head.streamed = chain.head.streamed_backward = 6 * rows * outputs;
  chain.head.operations = chain.head.operations_backward = 3;
  return chain;
}

}  // namespace tutti::planning
