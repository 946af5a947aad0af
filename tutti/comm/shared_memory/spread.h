#pragma once
// Moves ranks apart if the kernel does not. The kernel sometimes puts three of four ranks, or two of two, on one of two
// cores and leaves them there, because none of them seems busy. Each call then costs an additional context switch. The
// ranks can detect that, because each publishes its core in its line.
#include <cstdint>
#include <optional>
#include <span>

namespace tutti::comm {

// cores[r] is the core on which rank r runs. Returns the core that rank `rank` should move to, if it is the one to
// move: the highest rank of the fullest core, if that core has at least two ranks more than the emptiest core of
// `usable` (the cores on which this rank may run). All ranks with the same `cores` conclude alike, so one rank moves at
// a time.
std::optional<std::uint32_t> better_core(std::span<const std::uint32_t> cores, int rank,
                                         std::span<const std::uint32_t> usable);

// Moves the calling thread to the core that better_core() returns, and leaves the kernel free to move it again. Returns
// whether it moved. Makes no system call if no other rank is on its core; otherwise two, or four if it moves.
bool move_to_better_core(std::span<const std::uint32_t> cores, int rank);

}  // namespace tutti::comm
