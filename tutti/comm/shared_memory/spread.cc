#include "tutti/comm/shared_memory/spread.h"

#include <sched.h>

#include <algorithm>
#include <array>

namespace tutti::comm {

std::optional<std::uint32_t> better_core(std::span<const std::uint32_t> cores, int rank,
                                         std::span<const std::uint32_t> usable) {
  const auto load = [&](std::uint32_t core) { return std::count(cores.begin(), cores.end(), core); };
  const std::uint32_t mine = cores[std::size_t(rank)];
  if (usable.empty() || std::find(usable.begin(), usable.end(), mine) == usable.end()) return {};
  for (const std::uint32_t core : cores)
    if (load(core) > load(mine) || (load(core) == load(mine) && core < mine)) return {};  // a rank of that core moves
  if (std::find(cores.begin() + rank + 1, cores.end(), mine) != cores.end()) return {};
  const std::uint32_t emptiest = *std::min_element(usable.begin(), usable.end(),
                                                   [&](std::uint32_t a, std::uint32_t b) { return load(a) < load(b); });
  if (load(mine) - load(emptiest) < 2) return {};
  return emptiest;
}

bool move_to_better_core(std::span<const std::uint32_t> cores, int rank) {
  if (std::count(cores.begin(), cores.end(), cores[std::size_t(rank)]) < 2) return false;  // the rank is alone on it
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;  // more CPUs than a cpu_set_t holds
  std::array<std::uint32_t, CPU_SETSIZE> usable;
  std::size_t count = 0;
  for (std::uint32_t core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &allowed)) usable[count++] = core;
  const auto target = better_core(cores, rank, std::span(usable).first(count));
  if (!target) return false;
  cpu_set_t only;
  CPU_ZERO(&only);
  CPU_SET(*target, &only);
  if (::sched_setaffinity(0, sizeof only, &only) != 0) return false;
  (void)::sched_setaffinity(0, sizeof allowed, &allowed);
  return true;
}

}  // namespace tutti::comm
