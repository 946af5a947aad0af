#pragma once
// Attention of queries to keys, in tiles of some queries by the keys that they see: what one rank computes at once.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tutti/parallel/tensor/sequence.h"

namespace tutti {

struct AttentionTask {
  bool causal = false;  // row i of the queries sees keys 0 .. i: both are the same rows of the sequence
  double scale = 1;
  double dropout = 0;
  std::uint64_t seed = 0;
  std::int64_t first_head = 0;
  SequencePart queries, keys;  // where in the sequence the rows are: dropout depends on it, and so do
  at::Tensor first_seen;       // i64 [rows, batch]: the first position of a key that a query sees; undefined: all
};

// f32 or f64, all the same, of any strides with the last dimension packed: query [rows, batch, heads, dim], key and
// value [keys, batch, groups, dim]. The tensors must not require a gradient: some of it may run on LibTorch's threads.
struct Attended {
  at::Tensor out;      // [rows, batch, heads, dim]
  at::Tensor log_sum;  // [rows, batch, heads]: log of the sum of exp(score) over the keys
};
Attended attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value, const AttentionTask& task);

// Adds to the three gradients. `log_sum`: over ALL keys that a query sees, of which these may be some; `product`
// [rows, batch, heads]: of each row of `out` (of all keys, too) with its gradient.
struct AttentionGradients {
  at::Tensor query, key, value;
};
void attend_backward(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const at::Tensor& out_gradient, const at::Tensor& log_sum, const at::Tensor& product,
                     const AttentionTask& task, const AttentionGradients& gradients);

}  // namespace tutti
