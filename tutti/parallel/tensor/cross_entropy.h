#pragma once
// Cross entropy of logits whose vocabulary is divided among the ranks of a tensor group: no rank ever has all logits of
// a token. One exchange of four numbers for each token and rank, forward; none backward.
#include <ATen/core/Tensor.h>

#include <cstdint>

#include "tutti/comm/group.h"

namespace tutti {

struct CrossEntropyOptions {
  std::int64_t words = 0;  // of the vocabulary, without its padding, which has no probability; 0: there is none
  // s: the target's probability is 1 - s + s / words, that of all others s / words, as in torch's cross_entropy. (The
  // formula of Megatron-LM with s' is this one with s = s' * words / (words - 1).)
  double label_smoothing = 0;
  // Use the memory of `logits` for what backward needs, and then for their gradient. Nothing else may need the logits,
  // as is the case for the result of a linear layer. Of f32 and f64 that are contiguous; else without effect.
  bool overwrite_logits = false;
};

// logits [..., v / size()]: rank r has entries r * v / size() and on of each token, as VocabParallelEmbedding has its
// rows. targets i64 [...]: the same on every rank, 0 .. words - 1; others throw Exception. On a GPU, where the host
// would have to wait for that, their losses and gradients are NaN. The loss of each token, [...], the same on every
// rank: f64 for f64, else f32, in which it is computed.
at::Tensor vocab_parallel_cross_entropy(const Group& group, const at::Tensor& logits, const at::Tensor& targets,
                                        const CrossEntropyOptions& options = {});

}  // namespace tutti
