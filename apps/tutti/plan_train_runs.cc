#include "apps/tutti/plan_train_runs.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <tuple>

#include "apps/tutti/plan_train_report.h"
#include "tutti/base/file.h"
#include "tutti/planning/training/cluster_file.h"

namespace tutti::cli {
namespace {

std::string to_text(const planning::Agreement& agreement) {
  std::string text = "no run ended, so there are no times to compare\n";
  if (agreement.runs > 0)
    text =
        fmt::format("{}: mean error {:.1f} %, median {:.1f} %, Kendall's tau {:.3f}\n", counted(agreement.runs, "run"),
                    100 * agreement.mean_error, 100 * agreement.median_error, agreement.tau);
  if (agreement.groups > 0)
    text += fmt::format(
        "{} of {} plans or more: the plan that would be taken is {:.1f} % slower than the fastest on "
        "average, at worst {:.1f} %\n",
        counted(agreement.groups, "group"), agreement.least_group, 100 * agreement.mean_regret,
        100 * agreement.worst_regret);
  if (agreement.failed > 0)
    text += fmt::format("{} failed, of which {} do not fit by the planner\n", counted(agreement.failed, "run"),
                        agreement.failed_foreseen);
  if (agreement.misjudged > 0)
    text += fmt::format("{} ended that by the planner do not fit\n", counted(agreement.misjudged, "run"));
  return text;
}

std::string to_json(const planning::Agreement& agreement) {
  const nlohmann::ordered_json json = {{"runs", agreement.runs},
                                       {"mean_error", agreement.mean_error},
                                       {"median_error", agreement.median_error},
                                       {"tau", agreement.tau},
                                       {"groups", agreement.groups},
                                       {"mean_regret", agreement.mean_regret},
                                       {"worst_regret", agreement.worst_regret},
                                       {"failed", agreement.failed},
                                       {"failed_foreseen", agreement.failed_foreseen},
                                       {"misjudged", agreement.misjudged}};
  return json.dump() + "\n";
}

Status write_fitted(const RunsQuestion& question, const Cluster& cluster, Cluster fitted, int runs) {
  fitted.name += "-calibrated";
  const std::vector<std::string> comments = {
      fmt::format("{} fitted to {} runs of {}", cluster.name, runs, question.calibrate_file)};
  return write_new_file(question.output, cluster_text(fitted, comments));
}

}  // namespace

Result<std::string> read_runs(const RunsQuestion& question) {
  constexpr std::uint64_t kMostBytes = 64 << 20;
  return read_file(question.file(), kMostBytes);
}

Status answer_runs(const RunsQuestion& question, const Cluster& cluster,
                   const std::function<planning::Agreement(const Cluster&)>& compare,
                   const std::function<Cluster()>& calibrated) {
  const planning::Agreement before = compare(cluster);
  if (question.calibrate_file.empty()) {
    fmt::print("{}", question.json ? to_json(before) : to_text(before));
    return {};
  }
  if (before.runs == 0)
    return invalid_argument(fmt::format("{}: no run ended, so there is nothing to fit", question.calibrate_file));
  const Cluster fitted = calibrated();
  const planning::Agreement after = compare(fitted);
  TUTTI_TRY(write_fitted(question, cluster, fitted, after.runs));
  if (question.json) {
    fmt::print("{}", to_json(after));
    return {};
  }
  fmt::print("before: {}after:  {}", to_text(before), to_text(after));
  for (const auto& [name, one, other] :
       {std::tuple("share of the peak", cluster.device.share, fitted.device.share),
        {"start of a product", cluster.device.product_start, fitted.device.product_start},
        {"stream bandwidth", cluster.device.stream_bandwidth, fitted.device.stream_bandwidth},
        {"function", cluster.device.function, fitted.device.function},
        {"launch", cluster.device.launch, fitted.device.launch},
        {"start of a collective", cluster.network.start, fitted.network.start},
        {"bandwidth inside", cluster.network.inside.bandwidth, fitted.network.inside.bandwidth},
        {"bandwidth between", cluster.network.between.bandwidth, fitted.network.between.bandwidth}})
    if (one != other) fmt::print("  {:<22} {:.4g} to {:.4g}\n", name, one, other);
  return {};
}

}  // namespace tutti::cli
