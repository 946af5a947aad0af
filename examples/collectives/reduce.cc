// The sum of what every rank brings, on one rank. The others give an empty output: nothing is written there.
#include <tutti/core.h>

#include <cstdio>
#include <vector>

int main() {
  const tutti::Group world = tutti::init();
  const std::vector<float> mine(3, float(world.rank() + 1));
  std::vector<float> sum(world.rank() == 0 ? mine.size() : 0);
  tutti::reduce(world, std::span<const float>(mine), std::span<float>(sum), 0);
  if (world.rank() == 0) std::printf("rank 0 of %d has the sum: %g %g %g\n", world.size(), sum[0], sum[1], sum[2]);
}
