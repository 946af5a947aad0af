#pragma once
// A weight that the first stage and the last one share, such as the word embedding and the head of a language model.
// Each has a copy; equal at the start and with equal gradients in each step they stay equal.
#include "tutti/comm/group.h"

namespace at {
class Tensor;
}

namespace tutti {

// `group`: the ranks with a copy, Grid::embedding_group(): one or two. On others an empty Group: then these do nothing,
// as where the group has one rank (which must use one parameter for both).

// Once: gives all copies the values of the first rank's. Refused: sizes or types that differ.
void tie_weight(const Group& group, const at::Tensor& weight);
// After each step's backwards (and after the gradients were averaged over data ranks, or before: both are sums), before
// norms and clipping: the sum of the copies' gradients, on each of them. A rank without a gradient counts as zeros.
// In a gradient norm over all stages one copy counts.
void sum_tied_gradients(const Group& group, const at::Tensor& weight);

}  // namespace tutti
