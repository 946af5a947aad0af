#pragma once
// One rank reads, all train: the root makes the batch of all ranks and gives each its part. For data that only one host
// has, or that is read better by one than by all.
#include <ATen/core/Tensor.h>

#include <functional>
#include <optional>
#include <vector>

#include "tutti/comm/group.h"

namespace tutti {

// Every rank calls; `batch` matters on the root: tensors of one number of rows (their first dimension), of which rank r
// gets the r-th n-th part, as BatchSampler::take_for_all() orders samples; the rows must divide by the ranks. None:
// there are no more batches, which every rank is told. The rest is free: any number of tensors, any types, shapes that
// change from batch to batch. Throws Exception, the same on every rank, for a batch that cannot be cut.
std::optional<std::vector<at::Tensor>> scatter_batch(const Group& group,
                                                     const std::optional<std::vector<at::Tensor>>& batch, int root = 0);

}  // namespace tutti
