#pragma once
// What the double of NCCL computes: element by element, in the order of the ranks.
#include <nccl.h>

#include <cstddef>
#include <vector>

namespace fake_nccl {

std::size_t size_of(ncclDataType_t type);
// out[i] = what all ranks gave, combined. An op that NCCL does not define is a sum (of what was multiplied before).
void reduce(ncclDataType_t type, ncclRedOp_t op, const std::vector<const void*>& from, void* out, std::size_t count);
void multiply(ncclDataType_t type, const void* factor, void* data, std::size_t count);

}  // namespace fake_nccl
