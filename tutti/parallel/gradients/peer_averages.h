#pragma once
// Averages of what lies in the memory of the ranks of one host, each made by one rank for all, and looked at while it
// is in that rank's cache.
#include <cstddef>
#include <functional>
#include <span>

#include "tutti/base/dtype.h"
#include "tutti/comm/group.h"

namespace tutti {

// Elements whose averages are not all finite, before they are written.
struct NonFiniteTile {
  std::size_t begin = 0, count = 0;    // in the range
  const void* average = nullptr;       // of those elements
  std::span<const void* const> given;  // by rank: what it is the average of
};

// Floating numbers. `places` is where each rank's range of `count` elements lies in this process (peer_memory()); this
// rank averages its part of them, in rank order, over all. Every rank calls, between two meetings: the first says that
// all gradients are there, the second that all averages are. `tell` is called for each tile that is not finite, one at
// a time, maybe on another thread. Reads and writes each element once; the look costs next to nothing beside.
void average_part(const Group& group, DType dtype, std::size_t count, std::span<std::byte* const> places,
                  const std::function<void(const NonFiniteTile&)>& tell);

// The part that it takes, [begin, end): whole cache lines, but for the last.
struct OwnPart {
  std::size_t begin = 0, end = 0;
};
OwnPart own_part(const Group& group, DType dtype, std::size_t count);

}  // namespace tutti
