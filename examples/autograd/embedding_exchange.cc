// Model parallelism of a recommender: every rank owns one table of embeddings and has samples of its own. It looks up
// its table for the samples of all ranks, and an all_to_all gives each rank what all tables hold for its samples. In
// backward() the gradients travel back to the tables that they belong to.
#include <torch/torch.h>
#include <tutti/tutti.h>

#include <cstdio>

int main() {
  const tutti::Group world = tutti::init();
  const std::int64_t ranks = world.size(), samples = 2, width = 2;
  const auto table = torch::ones({4, width}, torch::requires_grad());

  // What each sample of all ranks looks up, by rank: [ranks * samples, width].
  const auto wanted = torch::arange(ranks * samples).remainder(4);
  const auto pending = tutti::autograd::all_to_all_async(world, table.index_select(0, wanted));
  const auto dense = torch::full({samples, width}, double(world.rank() + 1));  // meanwhile: the dense part of the model
  const auto embedded = pending.get().view({ranks, samples, width});           // by table

  const auto loss = (embedded * dense).sum();  // of this rank's samples; backward() takes the sum over all ranks
  loss.backward();
  std::printf("rank %d of %d: loss %g, the gradient of its table sums up to %g\n", world.rank(), world.size(),
              loss.item<double>(), table.grad().sum().item<double>());
}
