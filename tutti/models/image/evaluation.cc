// Batches are of the dataset, not of a rank: whoever computes one gets the same sum, and the sums are added in their
// order, in double. So the score does not depend on the number of ranks, to the last bit.
#include "tutti/models/image/evaluation.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tutti/comm/collectives.h"
#include "tutti/models/image/models.h"
#include "tutti/models/image/pictures.h"
#include "tutti/tensor/rank_device.h"

namespace tutti {
namespace {

constexpr std::size_t kBatch = 250;

}  // namespace

ImageScore evaluate(const Group& world, ImageModel& model, const ImageDataset& data) {
  const at::NoGradGuard no_grad;
  model.eval();
  const Pictures pictures(data);
  const at::Device device = model.parameters().front().device();
  std::int64_t hits = 0;
  std::vector<double> losses((data.size() + kBatch - 1) / kBatch);
  for (auto number = std::size_t(world.rank()); number < losses.size(); number += std::size_t(world.size())) {
    std::vector<std::int64_t> samples(std::min(kBatch, data.size() - number * kBatch));
    std::iota(samples.begin(), samples.end(), std::int64_t(number * kBatch));
    const auto batch = pictures.batch(samples);
    const at::Tensor labels = copied_to(batch.labels, device),
                     scores = model.forward(copied_to(batch.pictures, device));
    hits += scores.argmax(1).eq(labels).sum().item<std::int64_t>();
    losses[number] = at::nll_loss(scores, labels, {}, at::Reduction::Sum).item<double>();
  }
  model.train();
  const double size = double(data.size());
  all_reduce(world, std::span(losses));  // all but one rank give zeros
  return {double(all_reduce(world, hits)) / size, std::accumulate(losses.begin(), losses.end(), 0.0) / size};
}

}  // namespace tutti
