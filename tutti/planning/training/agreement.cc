#include "tutti/planning/training/agreement.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "tutti/base/text.h"

namespace tutti::planning {
namespace {

double kendall_tau(const std::vector<double>& x, const std::vector<double>& y) {
  double sum = 0, ties_x = 0, ties_y = 0, pairs = 0;
  for (std::size_t i = 0; i < x.size(); ++i)
    for (std::size_t j = 0; j < i; ++j) {
      const double a = x[i] - x[j], b = y[i] - y[j];
      sum += a * b > 0 ? 1 : a * b < 0 ? -1 : 0;
      ties_x += a == 0, ties_y += b == 0, ++pairs;
    }
  const double scale = std::sqrt((pairs - ties_x) * (pairs - ties_y));
  return scale > 0 ? sum / scale : 0;
}

// The figures that are fitted.
std::vector<double*> figures(Cluster& cluster) {
  return {&cluster.device.share,
          &cluster.device.product_start,
          &cluster.device.stream_bandwidth,
          &cluster.device.function,
          &cluster.device.launch,
          &cluster.network.start,
          &cluster.network.inside.bandwidth,
          &cluster.network.between.bandwidth};
}

}  // namespace

Agreement agreement_of(const std::vector<ComparedRun>& runs, int least_group) {
  Agreement agreement{.least_group = least_group};
  std::vector<double> predicted, measured, errors;
  std::map<std::string, std::vector<std::pair<double, double>>> groups;  // predicted, measured
  for (const ComparedRun& run : runs) {
    if (run.measured == 0) {
      ++agreement.failed;
      agreement.failed_foreseen += !run.fits;
      continue;
    }
    agreement.misjudged += !run.fits;
    predicted.push_back(run.predicted);
    measured.push_back(run.measured);
    errors.push_back(std::abs(run.predicted / run.measured - 1));
    groups[run.group].emplace_back(run.predicted, run.measured);
  }
  agreement.runs = int(errors.size());
  if (errors.empty()) return agreement;
  for (const double error : errors) agreement.mean_error += error / double(errors.size());
  agreement.median_error = median(errors);
  agreement.tau = kendall_tau(measured, predicted);
  for (const auto& [group, steps] : groups) {
    if (int(steps.size()) < least_group) continue;
    const double picked = std::min_element(steps.begin(), steps.end())->second;
    double least = picked;
    for (const auto& [prediction, measurement] : steps) least = std::min(least, measurement);
    ++agreement.groups;
    agreement.mean_regret += picked / least - 1;
    agreement.worst_regret = std::max(agreement.worst_regret, picked / least - 1);
  }
  if (agreement.groups > 0) agreement.mean_regret /= agreement.groups;
  return agreement;
}

Cluster calibrated(const Cluster& cluster, const std::vector<double>& measured,
                   const std::function<std::vector<double>(const Cluster&)>& predict) {
  constexpr double kFurthest = 3, kFirstStep = 1.5, kLastStep = 1.01;
  const auto loss = [&](const Cluster& one) {
    const std::vector<double> predicted = predict(one);
    double sum = 0;
    for (std::size_t i = 0; i < measured.size(); ++i) sum += std::abs(std::log(predicted[i] / measured[i]));
    return sum / double(std::max<std::size_t>(measured.size(), 1));
  };
  // One figure after another is moved by a factor, as long as that helps, and then by smaller ones.
  Cluster best = cluster, start = cluster;
  double least = loss(best);
  for (double step = kFirstStep; step > kLastStep;) {
    bool moved = false;
    for (std::size_t i = 0; i < figures(best).size(); ++i)
      for (const double factor : {step, 1 / step}) {
        Cluster next = best;
        double& figure = *figures(next)[i];
        const double first = *figures(start)[i];
        figure = std::clamp(figure * factor, first / kFurthest, first * kFurthest);
        if (i == 0) figure = std::min(figure, 1.0);
        if (const double error = loss(next); error < least * (1 - 1e-6)) {
          least = error;
          best = next;
          moved = true;
        }
      }
    if (!moved) step = std::sqrt(step);
  }
  return best;
}

}  // namespace tutti::planning
