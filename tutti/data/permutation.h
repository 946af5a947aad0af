#pragma once
// torch.randperm for the CPU generator, number for number, without LibTorch.
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

// Returns the permutation of 0 .. size-1 that `torch.randperm(size, generator=torch.Generator().manual_seed(seed))`
// returns. Pass a negative seed of Python as its two's complement. From 214,748,364 elements on, PyTorch 1.13 and 2.x
// differ; this is 1.13's permutation. Throws Exception for 2^32 elements and more, where a 32-bit draw no longer
// reaches every position.
std::vector<std::int64_t> random_permutation(std::size_t size, std::uint64_t seed);

}  // namespace tutti
