// Element-wise work of a block, in the bytes that Megatron-LM's fused kernels of 2021 read and write for each row:
//
//   norms, dropout, additions to the residual   11 h numbers, on every tensor rank, or divided by sequence parallelism
//   activation of the MLP                       2 (fc1 + ffn) numbers, divided over the tensor ranks
//   transposes of queries, keys and values      2 qkv numbers, divided
//   softmax, mask and dropout of scores         4 numbers and a byte for each score, where scores are kept; divided
//
// in 14 kernels, 5 of them for scores. Backward moves 1.6 times as many bytes in 22 kernels. The factor was fitted to
// the measured backward passes of arXiv:2205.05198, table 4.
//
// Cores compute attention in tiles (parallel/tensor/attention_tiles.h), and LibTorch's operations one after another:
// for each row 22 h numbers, and for each parameter the sum of its gradients. Numbers of calls were fitted on a Xeon,
// in units of the 5 us that `tutti plan measure` assumes for a call: from models of next to no size, and from what
// small microbatches and context parallelism add to a step.
#include "tutti/planning/training/layer_chain.h"

#include <algorithm>
#include <cmath>

namespace tutti::planning {
namespace {

constexpr double kBackward = 1.6, kKernels = 14, kKernelsBackward = 22;
constexpr double kRowNumbers = 11, kRowNumbersOnCores = 22;  // of h
constexpr double kTileRows = 128;
constexpr double kCallsOnCores = 33, kCallsOnCoresBackward = 67;  // of a block, besides its tiles
constexpr double kCallsOfTile = 4, kCallsOfTileBackward = 8;
constexpr double kCallsOfHop = 40, kCallsOfHopBackward = 60;
constexpr double kMaskShare = 0.4;   // time of a number that is dropped or kept, in those of a function
constexpr double kMergeNumbers = 6;  // that are read and written to merge a number of the output of attention

// Sizes that the works of a layer share. Rows and heads are those of a rank.
struct LayerSizes {
  LayerSizes(const TransformerConfig& config, const ParallelPlan& plan, const TrainingRuntime& runtime, bool on_cores)
      : tensor(plan.tensor),
        context(plan.context),
        sequence(config.sequence_length / context),
        rows(plan.micro_batch * sequence),
        heads(double(config.heads) / tensor),
        token_ranks(plan.sequence_parallel ? tensor : 1),
        tile_rows(on_cores ? std::min(kTileRows, sequence) : sequence),
        tiles(std::ceil(sequence / tile_rows) * plan.micro_batch * heads),
        seen(runtime.skips_masked ? 0.5 + (on_cores ? tile_rows / (2.0 * config.sequence_length) : 0) : 1),
        scores(heads * rows * config.sequence_length),
        hidden_masks(config.hidden_dropout > 0 ? kMaskShare * rows * config.hidden / token_ranks : 0) {}

  double tensor, context;
  double sequence;  // of a context rank
  double rows, heads, token_ranks;
  // Attention sees the keys of one context rank after another. A tile on the diagonal is computed whole.
  double tile_rows, tiles;  // tiles: for the keys of one context rank
  double seen;              // share of the scores that is computed
  double scores;            // with those that are not
  double hidden_masks;      // of one dropout, in functions
};

std::vector<ProductWork> products_of_block(const TransformerConfig& config, const LayerSizes& sizes,
                                           const TrainingRuntime& runtime) {
  const double t = sizes.tensor, h = config.hidden, head = config.head_size;
  const double qkv = double(config.qkv_size()), query = double(config.query_size()), fc1 = double(config.fc1_size());
  return {{.rows = sizes.rows, .outputs = qkv / t, .inputs = h, .hides_tensor_sum = true},
          {.rows = sizes.rows, .outputs = h, .inputs = query / t},
          {.rows = sizes.rows, .outputs = fc1 / t, .inputs = h, .hides_tensor_sum = true},
          {.rows = sizes.rows, .outputs = h, .inputs = config.ffn / t},
          {.rows = sizes.tile_rows,
           .outputs = sizes.sequence,
           .inputs = head,
           .batch = sizes.tiles,
           .share = sizes.seen,
           .times = sizes.context,
           .again = !runtime.keeps_scores,
           .has_weights = false},
          {.rows = sizes.tile_rows,
           .outputs = head,
           .inputs = sizes.sequence,
           .batch = sizes.tiles,
           .share = sizes.seen,
           .times = sizes.context,
           .has_weights = false}};
}

// Bytes that add the gradients of a product's weights to those of earlier microbatches.
double bytes_of_sum(const ProductWork& product, const TrainingRuntime& runtime) {
  return 3 * product.outputs * product.inputs * runtime.parameters.gradients;
}

void count_elements(LayerWork& block, const TransformerConfig& config, const LayerSizes& sizes,
                    const TrainingRuntime& runtime, bool on_cores) {
  const double t = sizes.tensor, c = sizes.context, rows = sizes.rows, h = config.hidden, e = runtime.element;
  const double qkv = double(config.qkv_size()), query = double(config.query_size()), fc1 = double(config.fc1_size());
  if (runtime.keeps_scores) block.score_bytes = sizes.scores * (4 * e + 1);
  block.forward.bytes =
      rows * ((on_cores ? kRowNumbersOnCores : kRowNumbers) * h * (e + runtime.residual) / 2 / sizes.token_ranks +
              2 * e * (fc1 + config.ffn) / t + 2 * e * qkv / t) +
      block.score_bytes;
  if (c > 1) block.forward.bytes += (c - 1) * rows * kMergeNumbers * query / t * e;
  block.backward.bytes = kBackward * block.forward.bytes;

  const double activations = rows * config.ffn / t;
  const double seen_scores = runtime.skips_masked ? sizes.scores / 2 : sizes.scores;
  const double score_masks = config.attention_dropout > 0 ? kMaskShare * sizes.seen * sizes.scores : 0;
  block.forward.functions = activations + seen_scores + 2 * sizes.hidden_masks + score_masks;
  block.backward.functions = activations + seen_scores + 2 * sizes.hidden_masks + 2 * score_masks;

  block.forward.calls = kKernels, block.backward.calls = kKernelsBackward;
  if (!on_cores) return;
  block.forward.calls = kCallsOnCores + c * sizes.tiles * kCallsOfTile + (c - 1) * kCallsOfHop;
  block.backward.calls = kCallsOnCoresBackward + c * sizes.tiles * kCallsOfTileBackward + (c - 1) * kCallsOfHopBackward;
  for (const ProductWork& product : block.products)
    if (product.has_weights) block.backward.bytes += bytes_of_sum(product, runtime);
}

}  // namespace

LayerChain transformer_chain(const TransformerConfig& config, const ParallelPlan& plan, const TrainingRuntime& runtime,
                             bool on_cores) {
  const LayerSizes sizes(config, plan, runtime, on_cores);
  const double t = sizes.tensor, rows = sizes.rows, h = config.hidden, e = runtime.element;
  LayerChain chain;
  LayerWork& block = chain.block;
  block.products = products_of_block(config, sizes, runtime);
  count_elements(block, config, sizes, runtime, on_cores);
  if (plan.tensor > 1) {
    block.tensor_sums = 2;
    block.tensor_bytes = rows * h * e;
  }
  if (plan.context > 1) {
    block.context_hops = sizes.context - 1;
    block.context_bytes = rows * 2 * double(config.key_size()) / t * e;
  }

  chain.embedding.forward = {.bytes = 3 * rows * h * runtime.residual, .functions = sizes.hidden_masks, .calls = 2};
  chain.embedding.backward = chain.embedding.forward;

  const double outputs = config.vocabulary / t;
  chain.head.products = {{.rows = rows, .outputs = outputs, .inputs = h}};
  chain.head.forward = {.bytes = 6 * rows * outputs, .functions = rows * outputs, .calls = 3};
  chain.head.backward = {.bytes = 6 * rows * outputs, .calls = 3};
  if (on_cores) chain.head.backward.bytes += bytes_of_sum(chain.head.products[0], runtime);
  return chain;
}

}  // namespace tutti::planning
