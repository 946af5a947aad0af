// Every rank gets what every rank brings, ordered by rank.
#include <tutti/core.h>

#include <cstdio>
#include <vector>

int main() {
  const tutti::Group world = tutti::init();
  const int mine = 10 * world.rank();
  std::vector<int> all(world.size());
  tutti::all_gather(world, std::span<const int>(&mine, 1), std::span<int>(all));
  // One printf: a line of one rank is never cut by another's.
  std::printf("rank %d got %d values, the last is %d\n", world.rank(), int(all.size()), all.back());
}
