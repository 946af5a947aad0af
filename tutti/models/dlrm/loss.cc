// mse, bce and wbce as torch.nn has them: logarithms are cut at -100, and the slope of bce is divided by at least
// 1e-12, so that a prediction of 0 or 1 gives large numbers instead of infinite ones.
#include "tutti/models/dlrm/loss.h"

#include <algorithm>
#include <cmath>

namespace tutti::dlrm {
namespace {

struct Term {
  double loss, slope;
};

Term squared(double p, double t) { return {(p - t) * (p - t), 2 * (p - t)}; }

Term cross_entropy(double p, double t) {
  const auto log_of = [](double x) { return std::max(std::log(x), -100.0); };
  return {-(t * log_of(p) + (1 - t) * log_of(1 - p)), (p - t) / std::max(p * (1 - p), 1e-12)};
}

}  // namespace

template <class T>
LossSums loss_of(const LossOptions& options, std::span<T> predictions, std::span<const T> targets, double divisor,
                 std::span<T> gradient) {
  const bool bounded = options.threshold > 0 && options.threshold < 1;
  const T low = T(options.threshold), high = T(1 - options.threshold);
  LossSums sums{.samples = std::int64_t(predictions.size())};
  for (std::size_t i = 0; i < predictions.size(); ++i) {
    const double t = double(targets[i]);
    bool held = false;
    if (bounded) {
      const T before = predictions[i];
      held = before < low || before > high;
      predictions[i] = std::min(std::max(before, low), high);
    }
    const double p = double(predictions[i]);
    Term term = options.function == LossFunction::kMse ? squared(p, t) : cross_entropy(p, t);
    if (options.function == LossFunction::kWbce) {
      const double weight = options.weights[t >= 1 ? 1 : 0];  // the class is the target without its fraction
      term = {weight * term.loss, weight * term.slope};
    }
    sums.loss += term.loss;
    sums.correct += std::nearbyint(p) == t;
    if (!gradient.empty()) gradient[i] = held ? T(0) : T(term.slope / divisor);
  }
  return sums;
}

template LossSums loss_of(const LossOptions&, std::span<float>, std::span<const float>, double, std::span<float>);
template LossSums loss_of(const LossOptions&, std::span<double>, std::span<const double>, double, std::span<double>);

}  // namespace tutti::dlrm
