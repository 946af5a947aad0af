#pragma once
// What the machine gives when nothing is in the way, measured in the same run: no operation can be faster than the
// bytes that it must move take at this speed.
#include "bench/collectives/operation.h"

namespace tutti::bench {

// Smaller vectors are all waiting: no bandwidth is their limit.
inline constexpr std::size_t kLeastForLimit = 4096;

// a[i] += b[i] / 2, with the widest vectors of this CPU: moves three words for each element.
void triad(float* a, const float* b, std::size_t count);

// Bytes a second that the memory of this machine moves at its best, all cores together: a += k * b, one rank a core, at
// most as many as `world` has there, on buffers of `bytes` each, so that they stay in a cache where those of an
// operation would. Adds the zeros that are there. Collective.
double memory_speed(const Group& world, int cores, std::byte* a, const std::byte* b, std::size_t bytes);

// Bytes a second, at best, of one stream of TCP from the first host of `world` to the second, by the socket calls
// alone, with the congestion control that tutti asks for. Collective. Throws Exception.
double wire_speed(const Group& world);

// Seconds that the operation needs on `groups` groups of `ranks` ranks at once at this speed of the memory.
double least_memory_seconds(const Operation& operation, std::size_t bytes, int ranks, int groups, double speed);
// The same where each of `hosts` hosts has one wire.
double least_wire_seconds(const Operation& operation, std::size_t bytes, int hosts, double speed);

}  // namespace tutti::bench
