#pragma once
// The kernel sometimes puts three ranks of four on one of two cores, or two of two, and leaves them there, since none
// of them seems busy: each call then takes a switch of tasks more. Ranks know better: each tells in its line where it
// runs.
#include <cstdint>
#include <optional>
#include <span>

namespace tutti {

// cores[r]: where rank r runs. The core that rank `rank` should move to, if it is the one to move: the highest rank of
// the fullest core, when that has two ranks more than the emptiest of `usable` (those that this rank may run on). From
// the same cores all ranks conclude alike, so one moves at a time.
std::optional<std::uint32_t> better_core(std::span<const std::uint32_t> cores, int rank,
                                         std::span<const std::uint32_t> usable);

// Moves the calling thread to the core that better_core() gives, and leaves the kernel free to move it again. Whether
// it moved. No system call where no other rank is on its core; else two, four if it moves.
bool move_to_better_core(std::span<const std::uint32_t> cores, int rank);

}  // namespace tutti
