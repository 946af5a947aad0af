#pragma once
// How much memory of CPU tensors a piece of a program takes, counted exactly: for activations against their formulas.
#include <cstdint>

namespace tutti {

// From here on, for the rest of the process, every CPU tensor is counted when its memory is taken and given back, which
// costs about 0.2 us each. Installs the caching allocator (tensor/caching_allocator.h) below. Any thread, any number of
// times; tensors made before are not counted.
void count_live_bytes();

// Taken less given back by this thread since counting began, as asked for (allocators round up). What another thread
// gives back counts there.
std::int64_t live_bytes();

}  // namespace tutti
