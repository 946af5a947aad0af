#pragma once
// One model on several ranks: the same structure, and the same values.
#include <span>
#include <string>
#include <vector>

#include "tutti/comm/agree.h"

namespace tutti {

struct NamedTensor;

// Every rank calls. Throws an Exception that names it if a tensor of this rank is sparse, or neither on the CPU nor on
// a GPU, and the same Exception (kMismatch) on every rank if names, shapes, element types, strides, kinds of device or
// whether they train differ somewhere: it shows the first difference, and both sides.
void require_same_structure(const Group& group, std::span<const NamedTensor> tensors);

// The same for the options of `whom`, in an order that all ranks share.
void require_same_options(const Group& group, const std::string& whom, const std::vector<NamedValue>& options);

// Rank `root`'s values for all, into the tensors, which have the same structure on every rank; any strides will do.
// Small tensors are packed. Without autograd (at::NoGradGuard).
void broadcast_values(const Group& group, std::span<const NamedTensor> tensors, int root = 0);

}  // namespace tutti
