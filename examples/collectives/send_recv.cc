// A number goes round: each rank receives it from the one before, adds its own and sends it on. Blocking calls: recv
// returns when the number is here, send when the memory may be used again.
#include <tutti/core.h>

#include <cstdio>

int main() {
  const tutti::Group world = tutti::init();
  const int rank = world.rank(), last = world.size() - 1;
  int sum = 0;
  if (rank > 0) tutti::recv(world, std::span<int>(&sum, 1), rank - 1);
  sum += rank;
  if (rank < last) tutti::send(world, std::span<const int>(&sum, 1), rank + 1);
  if (rank == last) std::printf("rank %d of %d has the sum of all ranks: %d\n", rank, world.size(), sum);
}
