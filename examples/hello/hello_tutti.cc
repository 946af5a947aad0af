// The same with tensors: every rank brings its rank + 1; everybody gets the sum.
#include <torch/torch.h>
#include <tutti/tutti.h>

#include <cstdio>

int main() {
  tutti::Group world = tutti::init();
  const auto number = torch::full({1}, world.rank() + 1, torch::kInt64);
  tutti::all_reduce(world, number);
  std::printf("rank %d of %d: the sum is %d\n", world.rank(), world.size(), int(number.item<std::int64_t>()));
}
