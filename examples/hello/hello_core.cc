// Every rank brings its rank + 1; everybody gets the sum. Alone it is a world of one, under `tutti run -n 3` one of
// three.
#include <tutti/core.h>

#include <cstdio>

int main() {
  tutti::Group world = tutti::init();
  const int sum = tutti::all_reduce(world, world.rank() + 1);
  std::printf("rank %d of %d: the sum is %d\n", world.rank(), world.size(), sum);
}
