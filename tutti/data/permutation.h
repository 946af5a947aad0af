#pragma once
// torch.randperm for the CPU generator, number for number, without LibTorch.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

// The permutation of 0 .. size-1 that `torch.randperm(size, generator=torch.Generator().manual_seed(seed))` gives.
// Negative seeds of Python are their two's complement here. Throws std::bad_alloc where 8 bytes an element do not fit.
std::vector<std::int64_t> random_permutation(std::size_t size, std::uint64_t seed);

}  // namespace tutti
