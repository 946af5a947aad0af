#include "apps/tutti/plan_train_dlrm.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/tutti/command.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/models/dlrm/auto_parallel.h"
#include "tutti/models/dlrm/placing.h"
#include "tutti/planning/tables/plan_file.h"
#include "tutti/planning/training/measured_placements.h"

namespace tutti::cli {
namespace in_plan_train_dlrm {
namespace {

constexpr int kMostRanks = 8;  // rows of the table of ranks

struct Planned {
  RecommendationModel model;
  int batch = 0;
};

double mebi(double bytes) { return bytes / (1024 * 1024); }

std::string nodes_text(const Cluster& cluster) {
  int nodes = 0, least = cluster.nodes[0].devices, most = least;
  for (const ClusterNodes& same : cluster.nodes) {
    nodes += same.count;
    least = std::min(least, same.devices);
    most = std::max(most, same.devices);
  }
  const std::string devices = least == most ? std::to_string(least) : fmt::format("{} to {}", least, most);
  return fmt::format("{} node{} of {} device{}", nodes, nodes == 1 ? "" : "s", devices, most == 1 ? "" : "s");
}

std::string millions(double count) {
  return count < 1e5 ? fmt::format("{:.0f}", count) : fmt::format("{:.1f} million", count / 1e6);
}

std::string headline(const DlrmQuestion& question, const Planned& planned) {
  return fmt::format(
      "dlrm ({} tables of {} numbers, MLPs of {} parameters) on {}: {}; "
      "global batch {}\n",
      planned.model.tables.size(), millions(planned.model.table_numbers()),
      millions(planned.model.bottom.parameters() + planned.model.top.parameters()),
      question.cluster.name.empty() ? "cluster" : question.cluster.name, nodes_text(question.cluster), planned.batch);
}

std::string answer_line(const Planned& planned, const RankedPlacement& plan, double limit) {
  return fmt::format("{} placement: {} a step, {:.0f} samples/s, {} of {} on rank {}\n", plan.name,
                     seconds_text(plan.time.step()), planned.batch / plan.time.step(),
                     bytes_text(std::uint64_t(plan.most_memory())), bytes_text(std::uint64_t(limit)), plan.fullest);
}

std::string parts_table(const RankedPlacement& plan) {
  std::string text = "\nthe step\n";
  for (const auto& [name, seconds] : planning::parts_of(plan.time))
    if (seconds > 0)
      text +=
          fmt::format("  {:<14} {:>10} {:>6.1f} %\n", name, seconds_text(seconds), 100 * seconds / plan.time.step());
  return text;
}

std::string ranks_table(const RankedPlacement& plan) {
  std::string text = "\nmemory in MiB\n  rank";
  for (const auto& [name, bytes] : planning::parts_of(plan.memory[0])) text += fmt::format(" {:>11}", name);
  text += fmt::format(" {:>11}\n", "total");
  const int ranks = int(plan.memory.size());
  for (int rank = 0; rank < ranks; ++rank) {
    if (ranks > kMostRanks && rank == kMostRanks - 2) {
      text += "  ...\n";
      rank = ranks - 1;
    }
    const RecommendationMemory& memory = plan.memory[std::size_t(rank)];
    text += fmt::format("  {:<4}", rank);
    for (const auto& [name, bytes] : planning::parts_of(memory)) text += fmt::format(" {:>11.1f}", mebi(bytes));
    text += fmt::format(" {:>11.1f}\n", mebi(memory.total()));
  }
  return text;
}

std::string placements_table(const DlrmQuestion& question, const RecommendationPlans& plans) {
  std::string text = fmt::format("\nplacements\n  {:>10} {:>10}  {}\n", "step", "MiB", "placement");
  int left = question.best;
  for (const RankedPlacement& plan : plans.best) {
    if (left-- == 0) break;
    text += fmt::format("  {:>10} {:>10.1f}  {}{}{}\n", seconds_text(plan.time.step()), mebi(plan.most_memory()),
                        plan.name, &plan == plans.best.data() ? "" : ": ",
                        &plan == plans.best.data() ? "" : planning::why_slower(plans.best[0], plan));
  }
  for (const RankedPlacement& plan : plans.unfit)
    text += fmt::format("  {:>10} {:>10.1f}  {}: {}\n", "", mebi(plan.most_memory()), plan.name,
                        planning::why_not_fit(plan, plans.limit));
  return text;
}

// The options of train_dlrm that train as planned.
std::vector<std::string> program_options(const DlrmQuestion& question, const Planned& planned,
                                         const RankedPlacement& plan) {
  std::vector<std::string> options = question.model_options;
  const auto add = [&](const char* name, const std::string& value) { options.insert(options.end(), {name, value}); };
  add("--mini-batch-size", std::to_string(planned.batch));
  if (!question.output.empty()) {
    add("--plan", question.output);
  } else if (plan.name == kNetworkPlacement) {
    add("--parallel", "auto");
    add("--cluster", question.cluster_name);
  } else {
    add("--placement", plan.name);
  }
  return options;
}

std::string command_text(const DlrmQuestion& question, const Planned& planned, const RankedPlacement& plan) {
  const auto& nodes = question.cluster.nodes;
  const std::string ranks = nodes.size() > 1     ? "--hosts ..."
                            : nodes[0].count > 1 ? fmt::format("--nnodes {} -n {}", nodes[0].count, nodes[0].devices)
                                                 : fmt::format("-n {}", nodes[0].devices);
  return fmt::format("\nrun it, with the options of the data\n  tutti run {} train_dlrm {}\n", ranks,
                     join(program_options(question, planned, plan), " "));
}

nlohmann::ordered_json placement_json(const DlrmQuestion& question, const Planned& planned,
                                      const RankedPlacement& plan) {
  const auto key = [](std::string name) {
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
  };
  nlohmann::ordered_json json = {{"plan", plan.name},
                                 {"step_s", plan.time.step()},
                                 {"samples_per_s", planned.batch / plan.time.step()},
                                 {"imbalance", plan.imbalance}};
  for (const auto& [name, seconds] : planning::parts_of(plan.time)) json["parts_s"][key(name)] = seconds;
  json["memory_bytes"] = plan.most_memory();
  json["fullest_rank"] = plan.fullest;
  for (const RecommendationMemory& memory : plan.memory) {
    nlohmann::ordered_json rank;
    for (const auto& [name, bytes] : planning::parts_of(memory)) rank[key(name)] = bytes;
    json["memory"].push_back(rank);
  }
  json["options"] = program_options(question, planned, plan);
  return json;
}

nlohmann::ordered_json question_json(const DlrmQuestion& question, const Planned& planned, double limit) {
  return {{"model", "dlrm"},
          {"parameters",
           planned.model.table_numbers() + planned.model.bottom.parameters() + planned.model.top.parameters()},
          {"tables", planned.model.tables.size()},
          {"cluster", question.cluster.name},
          {"devices", question.cluster.devices()},
          {"global_batch", planned.batch},
          {"runtime", "tutti"},
          {"limit_bytes", limit}};
}

std::string to_json(const DlrmQuestion& question, const Planned& planned, const RecommendationPlans& plans) {
  nlohmann::ordered_json json = question_json(question, planned, plans.limit);
  json["best"] = json["unfit"] = nlohmann::ordered_json::array();
  for (const RankedPlacement& plan : plans.best)
    if (int(json["best"].size()) < question.best) json["best"].push_back(placement_json(question, planned, plan));
  for (const RankedPlacement& plan : plans.unfit)
    json["unfit"].push_back({{"plan", plan.name},
                             {"step_s", plan.time.step()},
                             {"memory_bytes", plan.most_memory()},
                             {"why", planning::why_not_fit(plan, plans.limit)}});
  return json.dump() + "\n";
}

// The lines of placement_text() about tables; those about ranks are in ranks_table().
std::string tables_text(const std::string& text) { return text.substr(0, text.find("\n rank ") + 1); }

PlannerOptions tables_of(const DlrmQuestion& question) {
  return dlrm::planner_options(question.options, question.cluster.devices());
}

std::string to_text(const DlrmQuestion& question, const Planned& planned, const RecommendationPlans& plans) {
  std::string text = headline(question, planned);
  if (plans.best.empty()) return text + placements_table(question, plans);
  const RankedPlacement& best = plans.best[0];
  return text + answer_line(planned, best, plans.limit) + parts_table(best) + ranks_table(best) +
         placements_table(question, plans) + "\ntables\n" +
         tables_text(placement_text(best.placement, planned.model.tables, tables_of(question))) +
         command_text(question, planned, best);
}

Status compare(const DlrmQuestion& question, const Planned& planned, const RecommendationPlans& plans) {
  const TablePlacement placement = TUTTI_TRY(place_by_name(question.why, planned.model.tables, tables_of(question)));
  const RankedPlacement other =
      evaluate(planned.model, question.cluster, planned.batch, question.planning, question.why, placement);
  const RankedPlacement& best = plans.best.empty() ? other : plans.best[0];
  const bool fits = other.most_memory() <= plans.limit;
  if (question.json) {
    nlohmann::ordered_json json = question_json(question, planned, plans.limit);
    json["best"] = placement_json(question, planned, best);
    json["given"] = placement_json(question, planned, other);
    json["fits"] = fits;
    json["why"] = planning::why_slower(best, other);
    fmt::print("{}\n", json.dump());
    return {};
  }
  std::string text = headline(question, planned) + "best   " + answer_line(planned, best, plans.limit) + "given  " +
                     answer_line(planned, other, plans.limit);
  text += fmt::format("\n  {:<14} {:>10} {:>10}\n", "", "best", "given");
  const auto ours = planning::parts_of(best.time), theirs = planning::parts_of(other.time);
  for (std::size_t i = 0; i < ours.size(); ++i)
    text += fmt::format("  {:<14} {:>10} {:>10}\n", ours[i].first, seconds_text(ours[i].second),
                        seconds_text(theirs[i].second));
  text += fmt::format("  {:<14} {:>10.1f} {:>10.1f}\n\n", "MiB", mebi(best.most_memory()), mebi(other.most_memory()));
  if (!fits) text += fmt::format("it does not fit: {}\n", planning::why_not_fit(other, plans.limit));
  if (!(other.placement == best.placement)) text += planning::why_slower(best, other) + "\n";
  fmt::print("{}", text);
  return {};
}

// --fix placement=NAME and --allow NAME,NAME.
Status interpret_rules(DlrmQuestion& question) {
  std::vector<std::string> known = placement_names();
  known.emplace_back(kNetworkPlacement);
  const auto take = [&](const char* option, const std::string& name) -> Status {
    question.planning.placements.push_back(known[TUTTI_TRY(choose(option, name, known))]);
    return {};
  };
  for (const std::string& part : question.fix) {
    constexpr std::string_view kKey = "placement=";
    if (!part.starts_with(kKey))
      return usage(fmt::format("--fix {}: of a dlrm the placement of tables is planned", part),
                   "--fix placement=" + join(known, "|"));
    TUTTI_TRY(take("--fix placement", part.substr(kKey.size())));
  }
  for (const std::string& name : question.allow)
    if (question.fix.empty()) TUTTI_TRY(take("--allow", name));
  if (!question.why.empty()) TUTTI_TRY(choose("--why", question.why, placement_names()));
  return {};
}

// --check and --calibrate.
Status compare_runs(const DlrmQuestion& question, const RecommendationModel& model) {
  const planning::PlacementQuestion asked{model, question.planning};
  const planning::MeasuredPlacement other{
      .name = question.fix.empty() ? placement_names().front() : question.planning.placements.back(),
      .devices = question.cluster.devices(),
      .global_batch = question.global_batch};
  const auto table = TUTTI_TRY(planning::parse_measured_placements(
      TUTTI_TRY(read_runs(question.runs)), question.runs.file(), asked, question.cluster, other));
  return answer_runs(
      question.runs, question.cluster, [&](const Cluster& cluster) { return planning::compare(table, asked, cluster); },
      [&] { return planning::calibrated(table, asked, question.cluster); });
}

}  // namespace
}  // namespace in_plan_train_dlrm

Status plan_dlrm(DlrmQuestion question) {
  using namespace in_plan_train_dlrm;
  TUTTI_TRY(interpret_rules(question));
  const auto& shape = question.options.architecture;
  const dlrm::Architecture architecture =
      TUTTI_TRY(dlrm::architecture_of(shape, shape.mlp_bottom.front(), shape.embedding_size, "--arch-embedding-size"));
  const RecommendationOptions exchange = dlrm::planning_options(question.options);
  question.planning.shares_memory = exchange.shares_memory;
  question.planning.wire = exchange.wire;
  const RecommendationModel model = dlrm::planned_model(architecture, question.options);
  if (question.runs.asked()) return compare_runs(question, model);
  const Planned planned{model, question.global_batch};
  const RecommendationPlans plans =
      TUTTI_TRY(plan_recommendation(planned.model, question.cluster, planned.batch, question.planning));
  if (!question.why.empty()) return compare(question, planned, plans);
  fmt::print("{}", question.json ? to_json(question, planned, plans) : to_text(question, planned, plans));
  if (plans.best.empty())
    return Error{.code = Code::kLimit,
                 .detail = plans.unfit.empty()
                               ? "no placement of the tables can be made"
                               : fmt::format("no placement fits: the smallest one, {}, {}", plans.unfit[0].name,
                                             planning::why_not_fit(plans.unfit[0], plans.limit)),
                 .hint = "more nodes, or --table-folder of train_dlrm, which keeps tables in files"};
  if (question.output.empty()) return {};
  return write_new_file(question.output, plan_text(plans.best[0].placement, planned.model.tables) + "\n");
}

}  // namespace tutti::cli
