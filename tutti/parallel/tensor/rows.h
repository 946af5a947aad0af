#pragma once
// Exchange of tensors whose rows (the first dimension) are divided among ranks: sequence parallelism.
#include <ATen/core/Tensor.h>

#include "tutti/comm/group.h"

namespace tutti {

// Memory for `rows` rows of the shape and type of those of `like`.
at::Tensor empty_rows(const at::Tensor& like, std::int64_t rows);

// The rows of all ranks, by rank; every rank gives as many. A new tensor.
at::Tensor gathered_rows(const Group& group, const at::Tensor& mine);
// This rank's part of the sum of `whole` over the ranks, whose number divides the rows. A new tensor.
at::Tensor part_of_summed_rows(const Group& group, const at::Tensor& whole);

}  // namespace tutti
