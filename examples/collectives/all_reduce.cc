// The sum of what every rank brings, on every rank, in place.
#include <tutti/core.h>

#include <cstdio>
#include <vector>

int main() {
  const tutti::Group world = tutti::init();
  std::vector<float> values(3, float(world.rank() + 1));
  tutti::all_reduce(world, std::span<float>(values));
  std::printf("rank %d of %d has the sum: %g %g %g\n", world.rank(), world.size(), values[0], values[1], values[2]);
}
