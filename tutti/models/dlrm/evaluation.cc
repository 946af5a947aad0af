#include "tutti/models/dlrm/evaluation.h"

#include <ATen/ATen.h>

#include <array>

#include "tutti/base/clock.h"
#include "tutti/comm/collectives.h"
#include "tutti/metrics/classification.h"
#include "tutti/models/dlrm/tensors.h"
#include "tutti/trace/region.h"

namespace tutti::dlrm {

Evaluation evaluate(const Group& world, Model& model, BatchReader& batches, const LossOptions& loss, bool ranked,
                    const AfterBatch& after) {
  std::vector<float> scores, targets;
  double loss_sum = 0;
  std::int64_t correct = 0, samples = 0;
  batches.seek(0);
  for (std::int64_t batch = 1; batch <= batches.batches(); ++batch) {
    const auto& step = batches.next();
    const auto begin = now();
    const auto views = step.views();
    const auto predictions = model.predict(model_batch(model, step, views));
    const Region region("DLRM accuracy compute");
    const auto sums = loss_of(loss, predictions, targets_of(model, step), 1, {});
    loss_sum += sums.loss;
    correct += sums.correct;
    samples += step.samples;
    if (ranked) {
      const auto flat = predictions.to(at::kFloat).contiguous();
      scores.insert(scores.end(), flat.data_ptr<float>(), flat.data_ptr<float>() + flat.numel());
      targets.insert(targets.end(), step.targets.begin(), step.targets.end());
    }
    if (after) after(batch, sums.loss, step.samples, seconds_since(begin));
  }
  std::array<double, 2> sums = {loss_sum, double(correct)};
  if (world.size() > 1) all_reduce(world, std::span<double>(sums));
  Evaluation found{.scores = {.accuracy = sums[1] / double(samples)}, .loss = sums[0] / double(samples)};
  if (!ranked) return found;
  const auto metrics =
      classification_metrics<float>(world, std::span<const float>(scores), std::span<const float>(targets)).or_throw();
  found.scores.ranked = true;
  found.scores.accuracy = metrics.accuracy;
  found.scores.recall = metrics.recall;
  found.scores.precision = metrics.precision;
  found.scores.f1 = metrics.f1;
  found.scores.average_precision = metrics.average_precision;
  found.scores.auc = metrics.roc_auc;
  return found;
}

}  // namespace tutti::dlrm
