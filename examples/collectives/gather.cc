// One rank gets what every rank brings, ordered by rank.
#include <tutti/core.h>

#include <cstdio>
#include <vector>

int main() {
  const tutti::Group world = tutti::init();
  const int mine = 10 * world.rank();
  std::vector<int> all(world.rank() == 0 ? world.size() : 0);
  tutti::gather(world, std::span<const int>(&mine, 1), std::span<int>(all), 0);
  for (const int value : all) std::printf("rank 0 got %d\n", value);
}
