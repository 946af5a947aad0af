#include "tutti/models/image/evaluation.h"

#include <ATen/Functions.h>

#include "tutti/comm/collectives.h"
#include "tutti/models/image/models.h"
#include "tutti/models/image/pictures.h"

namespace tutti {
namespace {

constexpr std::size_t kBatch = 500;

}  // namespace

ImageScore evaluate(const Group& world, ImageModel& model, const ImageDataset& data) {
  const at::NoGradGuard no_grad;
  model.eval();
  const Pictures pictures(data);
  std::int64_t hits = 0;
  double loss = 0;
  const auto stride = std::size_t(world.size());
  for (std::size_t next = std::size_t(world.rank()); next < data.size();) {
    std::vector<std::int64_t> samples;
    for (; next < data.size() && samples.size() < kBatch; next += stride) samples.push_back(std::int64_t(next));
    const auto batch = pictures.batch(samples);
    const auto scores = model.forward(batch.pictures);
    hits += scores.argmax(1).eq(batch.labels).sum().item<std::int64_t>();
    loss += at::nll_loss(scores, batch.labels, {}, at::Reduction::Sum).item<double>();
  }
  model.train();
  const double size = double(data.size());
  return {double(all_reduce(world, hits)) / size, all_reduce(world, loss) / size};
}

}  // namespace tutti
