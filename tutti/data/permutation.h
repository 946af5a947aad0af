#pragma once
// torch.randperm for the CPU generator, number for number, without LibTorch.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

// The permutation of 0 .. size-1 that `torch.randperm(size, generator=torch.Generator().manual_seed(seed))` gives.
// Negative seeds of Python are their two's complement here. (From 214,748,364 elements on PyTorch 2.x shuffles in
// another way than 1.13; this is 1.13's.) Throws Exception from 2^32 elements on, where 32-bit draws no longer reach
// every place.
std::vector<std::int64_t> random_permutation(std::size_t size, std::uint64_t seed);

}  // namespace tutti
