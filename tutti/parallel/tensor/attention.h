#pragma once
// Attention of the heads that a rank has, and over a context group, in which each rank has a part of the sequence.
// Heads on different ranks of a tensor group exchange nothing.
//
// Scores are computed in tiles of some queries by all keys that they may see, and never kept: backward computes them
// again from queries, keys and the logarithm of each row's sum (FlashAttention-2, Dao, 2023). Memory beside inputs,
// output and one number a row: one tile. In f32 for 16-bit inputs, else in the type of the inputs. On a GPU
// scaled_dot_product_attention() of LibTorch 2.5 computes what it has a fused kernel for: f32 or 16 bits, without
// dropout and documents, of one rank.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tutti/comm/group.h"

namespace tutti {

struct AttentionOptions {
  bool causal = true;  // a query sees keys of its own position and before
  double scale = 0;    // of the scores; 0: 1 / sqrt(head dim)
  double dropout = 0;  // of probabilities, in [0, 1)
  // The dropped elements depend on this seed (seed_at() of step, replica, micro batch and layer), the sample's place in
  // the batch, the head's number in the whole layer, and the positions of query and key. They do not depend on the
  // layout.
  std::uint64_t dropout_seed = 0;
  std::int64_t first_head = 0;  // of this rank, in the whole layer
  // The first position of a key that each query sees, of which its own is one: i64 [seq, batch] of this rank's rows.
  // Undefined: all before it. So documents of one sequence do not see each other.
  at::Tensor first_seen = {};
};

// query [seq, batch, heads, dim]; key and value [seq, batch, groups, dim], where groups divides heads: query heads
// h * heads / groups and on use group h. The result: [seq, batch, heads, dim]. No second derivative. Wrong shapes throw
// Exception.
at::Tensor attention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                     const AttentionOptions& options = {});

// The same of a sequence that context_part() (sequence.h) divides over `context`: tensors have this rank's rows. Keys
// and values are sent around a ring (Liu et al., 2023), while each rank computes with the previous ones. In backward
// their gradients follow them. Every rank calls, and runs backward, in the same order. One rank, or Group{}:
// attention().
at::Tensor ring_attention(const Group& context, const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          const AttentionOptions& options = {});

}  // namespace tutti
