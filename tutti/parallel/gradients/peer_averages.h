#pragma once
// Averages of gradients that are in the memory of the ranks of one host. Each rank averages its part and writes it over
// the gradients of all ranks.
#include <cstddef>
#include <functional>
#include <span>

#include "tutti/comm/group.h"
#include "tutti/parallel/gradients/average_tiles.h"

namespace tutti {

// Floating-point numbers. `places`: where each rank's `count` elements are in this process (peer_memory()). Every rank
// calls, between two barriers: before the first all gradients are ready, after the second all averages are. `report`,
// if given, is called for each tile that is not finite, before it is written; one tile at a time, maybe on another
// thread. Reads and writes each element once.
void average_with_peers(const Group& group, DType dtype, std::size_t count, std::span<std::byte* const> places,
                        const std::function<void(const AverageTile&)>& report);

// The part of this rank: whole cache lines, except at the end of the last rank's.
struct OwnPart {
  std::size_t begin = 0, end = 0;
};
OwnPart own_part(const Group& group, std::size_t element_size, std::size_t count);

}  // namespace tutti
