#include "apps/tutti/plan_train_report.h"

#include <fmt/core.h>
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tutti/base/text.h"
#include "tutti/planning/training/explain.h"

namespace tutti::cli {
namespace {

constexpr double kGibi = 1024.0 * 1024 * 1024;
constexpr int kMostStages = 8;  // rows of the table of stages

// Tokens or, of a replica, samples.
double units_per_second(const TrainQuestion& question, const RankedPlan& plan) {
  const double samples = double(question.global_batch) / plan.time.step();
  return question.replica ? samples : samples * question.model.sequence_length;
}
const char* unit_of(const TrainQuestion& question) { return question.replica ? "samples" : "tokens"; }

double operations_per_unit(const TrainQuestion& question) {
  if (!question.replica) return flops_per_token(question.model);
  double sum = 0;
  for (const ReplicaLayer& layer : question.replica->layers)
    sum += 2 * layer.rows * layer.outputs * layer.inputs * (layer.has_input_gradient ? 3 : 2);
  return sum;
}

double parameters_of(const TrainQuestion& question) {
  return question.replica ? question.replica->parameters() : double(parameters_of(question.model));
}

// Share of the published peak that the operations of the model reach. 0: the peak is not known.
double model_utilization(const TrainQuestion& question, const RankedPlan& plan) {
  double peak = 0;
  for (const ClusterNodes& nodes : question.cluster.nodes)
    peak += question.cluster.device.peak * nodes.count * nodes.devices * nodes.speed;
  return peak > 0 ? operations_per_unit(question) * units_per_second(question, plan) / peak : 0;
}

// Bytes in the unit of a table: GiB, or MiB where a rank needs less than 2 GiB.
struct Unit {
  explicit Unit(double most) : bytes(most < 2 * kGibi ? kGibi / 1024 : kGibi), name(most < 2 * kGibi ? "MiB" : "GiB") {}
  std::string text(double of) const { return fmt::format("{:.1f}", of / bytes); }
  double bytes;
  const char* name;
};

std::string parameters_text(double count) {
  return count < 1e9 ? fmt::format("{:.1f} million parameters", count / 1e6)
                     : fmt::format("{:.1f} billion parameters", count / 1e9);
}

std::string cluster_words(const Cluster& cluster) {
  int nodes = 0, least = cluster.nodes[0].devices, most = least;
  for (const ClusterNodes& same : cluster.nodes) {
    nodes += same.count;
    least = std::min(least, same.devices);
    most = std::max(most, same.devices);
  }
  return fmt::format("{}: {} of {}", cluster.name.empty() ? "cluster" : cluster.name, counted(nodes, "node"),
                     least == most ? counted(most, "device") : fmt::format("{} to {} devices", least, most));
}

std::string headline(const TrainQuestion& question) {
  if (question.replica)
    return fmt::format("{} ({}) on {}; global batch {}, optimizer {}\n", question.model_name,
                       parameters_text(parameters_of(question)), cluster_words(question.cluster), question.global_batch,
                       question.optimizer);
  return fmt::format("{} ({}, sequences of {}) on {}; global batch {}, runtime {}\n", question.model_name,
                     parameters_text(parameters_of(question)), question.model.sequence_length,
                     cluster_words(question.cluster), question.global_batch, question.options.runtime.name);
}

std::string answer_line(const TrainQuestion& question, const RankedPlan& plan, double limit) {
  std::string text = fmt::format("{}: {} a step, {:.0f} {}/s", to_string(plan.plan), seconds_text(plan.time.step()),
                                 units_per_second(question, plan), unit_of(question));
  if (const double share = model_utilization(question, plan); share > 0)
    text += fmt::format(", MFU {:.1f} %", 100 * share);
  text += fmt::format(", {} of {}", bytes_text(std::uint64_t(plan.memory.total())), bytes_text(std::uint64_t(limit)));
  if (question.replica)
    text += fmt::format("; a rank takes {} a step in {}",
                        counted(std::int64_t(question.global_batch) / plan.plan.data, "sample"),
                        plan.plan.microbatches(question.global_batch) == 1
                            ? "one pass"
                            : fmt::format("{} passes", plan.plan.microbatches(question.global_batch)));
  if (plan.plan.pipeline > 1) text += fmt::format(" on the ranks of pipeline rank {}", plan.fullest);
  return text + "\n";
}

std::string parts_table(const RankedPlan& plan) {
  std::string text = "\nthe step\n";
  for (const auto& [name, seconds] : parts_of(plan.time))
    if (seconds > 0)
      text +=
          fmt::format("  {:<14} {:>10} {:>6.1f} %\n", name, seconds_text(seconds), 100 * seconds / plan.time.step());
  return text;
}

// Of a replica: all ranks are alike.
std::string rank_table(const RankedPlan& best) {
  const Unit unit(best.memory.total());
  std::string text = fmt::format("\nmemory of a rank in {}\n", unit.name);
  for (const auto& [name, bytes] : parts_of(best.memory))
    if (bytes > 0) text += fmt::format("  {:<14} {:>10}\n", name, unit.text(bytes));
  return text + fmt::format("  {:<14} {:>10}\n", "total", unit.text(best.memory.total()));
}

std::string stages_table(const TrainQuestion& question, const RankedPlan& best) {
  if (question.replica) return rank_table(best);
  const int microbatches = best.plan.microbatches(question.global_batch), ranks = best.plan.pipeline;
  const Unit unit(best.memory.total());
  std::string text = fmt::format("\nmemory in {}\n  rank  layers", unit.name);
  for (const auto& [name, bytes] : parts_of(best.memory)) text += fmt::format(" {:>11}", name);
  text += fmt::format(" {:>11}\n", "total");
  for (int rank = 0; rank < ranks; ++rank) {
    if (ranks > kMostStages && rank == kMostStages - 2) {
      text += "  ...\n";
      rank = ranks - 1;
    }
    const planning::RankMemory memory =
        planning::memory_of_rank(question.model, best.plan, question.options.runtime, microbatches, rank);
    text += fmt::format("  {:<4}  {:<6}", rank, planning::layers_of_rank(question.model.layers, best.plan, rank));
    for (const auto& [name, bytes] : parts_of(memory)) text += fmt::format(" {:>11}", unit.text(bytes));
    text += fmt::format(" {:>11}\n", unit.text(memory.total()));
  }
  return text;
}

std::string plans_table(const std::vector<RankedPlan>& plans, const char* title) {
  double most = 0;
  for (const RankedPlan& plan : plans) most = std::max(most, plan.memory.total());
  const Unit unit(most);
  std::string text = fmt::format("\n{}\n  {:>10} {:>8}  {}\n", title, "step", unit.name, "plan");
  for (const RankedPlan& plan : plans)
    text += fmt::format("  {:>10} {:>8}  {}\n", seconds_text(plan.time.step()), unit.text(plan.memory.total()),
                        to_string(plan.plan));
  return text;
}

// Why a family loses, or does not fit; empty for that of the best plan.
std::string verdict(const TrainQuestion& question, const TrainingPlans& plans, const PlanFamily& family) {
  if (!family.fits) return planning::why_not_fit(family.best, plans.limit);
  if (plans.best.empty() || family.best.plan == plans.best[0].plan) return {};
  return planning::why_slower(plans.best[0], family.best, question.global_batch, question.cluster);
}

std::string families_text(const TrainQuestion& question, const TrainingPlans& plans) {
  std::string text = "\nother ways\n";
  for (const PlanFamily& family : plans.families) {
    const std::string sentence = verdict(question, plans, family);
    if (!sentence.empty()) text += fmt::format("  {} ({}): {}\n", family.name, to_string(family.best.plan), sentence);
  }
  return text == "\nother ways\n" ? std::string() : text;
}

std::string refusals_text(const TrainingPlans& plans) {
  std::string text = fmt::format("\n{} compared, {} fit", counted(plans.compared, "plan"), plans.fitting);
  text += plans.best.empty() ? "\n"
          : plans.is_proven  ? "; none of them is faster than the best one by this model\n"
                             : "; some pipelines were timed by closed form only\n";
  for (const auto& [reason, count] : plans.refusals) text += fmt::format("  {:>8} not taken: {}\n", count, reason);
  return text;
}

// How `tutti run` starts the ranks.
std::string ranks_text(const Cluster& cluster) {
  if (cluster.nodes.size() > 1) return "--hosts ...";
  const ClusterNodes& nodes = cluster.nodes[0];
  return nodes.count == 1 ? fmt::format("-n {}", nodes.devices)
                          : fmt::format("--nnodes {} -n {}", nodes.count, nodes.devices);
}

std::vector<std::string> options_of(const TrainQuestion& question, const RankedPlan& plan) {
  if (!question.replica) return planning::program_options(plan.plan, question.global_batch);
  std::vector<std::string> options = planning::replica_options(*question.replica, plan.plan, question.global_batch);
  options.insert(options.end(), {"--optimizer", question.optimizer});
  return options;
}

std::string command_text(const TrainQuestion& question, const RankedPlan& plan) {
  if (question.replica && question.model_name.starts_with("mlp:"))
    return "\ntrain_image has no such MLP: tutti::parallelize() trains any chain of blocks "
           "(docs/concepts/planner.md)\n";
  if (question.replica)
    return fmt::format("\nrun it, with the options of the data\n  tutti run {} train_image {}\n",
                       ranks_text(question.cluster), join(options_of(question, plan), " "));
  const std::string& runtime = question.options.runtime.name;
  const std::string options = join(planning::program_options(plan.plan, question.global_batch), " ");
  if (runtime == "tutti") {
    return fmt::format("\nrun it, with the options of the model and of the data\n  tutti run {} pretrain_gpt ... {}\n",
                       ranks_text(question.cluster), options);
  }
  return fmt::format("\noptions of {}\n  {}\n", runtime.starts_with("megatron") ? "Megatron-LM" : "Megatron-DeepSpeed",
                     options);
}

nlohmann::ordered_json plan_json(const TrainQuestion& question, const RankedPlan& plan) {
  nlohmann::ordered_json json = {
      {"plan", to_string(plan.plan)},
      {"step_s", plan.time.step()},
      {question.replica ? "samples_per_s" : "tokens_per_s", units_per_second(question, plan)}};
  if (const double share = model_utilization(question, plan); share > 0) json["mfu"] = share;
  const auto key = [](std::string name) {
    std::replace(name.begin(), name.end(), ' ', '_');
    return name;
  };
  for (const auto& [name, seconds] : parts_of(plan.time)) json["parts_s"][key(name)] = seconds;
  json["memory_bytes"] = plan.memory.total();
  json["fullest_rank"] = plan.fullest;
  for (const auto& [name, bytes] : parts_of(plan.memory)) json["memory"][key(name)] = bytes;
  json["options"] = options_of(question, plan);
  return json;
}

nlohmann::ordered_json question_json(const TrainQuestion& question, double limit) {
  nlohmann::ordered_json json = {{"model", question.model_name},
                                 {"parameters", std::int64_t(parameters_of(question))},
                                 {"cluster", question.cluster.name},
                                 {"devices", question.cluster.devices()},
                                 {"global_batch", question.global_batch}};
  if (!question.replica) json["sequence_length"] = question.model.sequence_length;
  json["runtime"] = question.options.runtime.name;
  json["limit_bytes"] = limit;
  return json;
}

}  // namespace

std::string counted(std::int64_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

std::string to_text(const TrainQuestion& question, const TrainingPlans& plans) {
  std::string text = headline(question);
  if (plans.best.empty()) return text + families_text(question, plans) + refusals_text(plans);
  const RankedPlan& best = plans.best[0];
  text += answer_line(question, best, plans.limit) + parts_table(best) + stages_table(question, best) +
          plans_table(plans.best, "the best plans");
  if (plans.front.size() > 1) text += plans_table(plans.front, "time for memory");
  return text + families_text(question, plans) + refusals_text(plans) + command_text(question, best);
}

std::string to_json(const TrainQuestion& question, const TrainingPlans& plans) {
  nlohmann::ordered_json json = question_json(question, plans.limit);
  json["compared"] = plans.compared;
  json["fitting"] = plans.fitting;
  json["proven"] = plans.is_proven;
  json["best"] = nlohmann::ordered_json::array();
  json["front"] = json["families"] = json["best"];
  json["refusals"] = nlohmann::ordered_json::object();
  for (const RankedPlan& plan : plans.best) json["best"].push_back(plan_json(question, plan));
  for (const RankedPlan& plan : plans.front)
    json["front"].push_back(
        {{"plan", to_string(plan.plan)}, {"step_s", plan.time.step()}, {"memory_bytes", plan.memory.total()}});
  for (const PlanFamily& family : plans.families)
    json["families"].push_back({{"name", family.name},
                                {"fits", family.fits},
                                {"plans", family.plans},
                                {"plan", to_string(family.best.plan)},
                                {"step_s", family.best.time.step()},
                                {"memory_bytes", family.best.memory.total()},
                                {"why", verdict(question, plans, family)}});
  for (const auto& [reason, count] : plans.refusals) json["refusals"][reason] = count;
  return json.dump() + "\n";
}

std::string why_text(const TrainQuestion& question, const RankedPlan& best, const RankedPlan& other, double limit,
                     const std::string& refusal) {
  std::string text = headline(question) + "best   " + answer_line(question, best, limit) + "given  " +
                     answer_line(question, other, limit);
  text += fmt::format("\n  {:<14} {:>10} {:>10}\n", "", "best", "given");
  const auto ours = parts_of(best.time), theirs = parts_of(other.time);
  for (std::size_t i = 0; i < ours.size(); ++i)
    if (ours[i].second > 0 || theirs[i].second > 0)
      text += fmt::format("  {:<14} {:>10} {:>10}\n", ours[i].first, seconds_text(ours[i].second),
                          seconds_text(theirs[i].second));
  const Unit unit(std::max(best.memory.total(), other.memory.total()));
  text += fmt::format("  {:<14} {:>10} {:>10}\n\n", unit.name, unit.text(best.memory.total()),
                      unit.text(other.memory.total()));
  if (other.memory.total() > limit) text += fmt::format("it does not fit: {}\n", planning::why_not_fit(other, limit));
  if (!refusal.empty()) text += fmt::format("{} cannot run it: {}\n", question.options.runtime.name, refusal);
  if (!(other.plan == best.plan))
    text += planning::why_slower(best, other, question.global_batch, question.cluster) + "\n";
  return text;
}

std::string why_json(const TrainQuestion& question, const RankedPlan& best, const RankedPlan& other, double limit,
                     const std::string& refusal) {
  nlohmann::ordered_json json = question_json(question, limit);
  json["best"] = plan_json(question, best);
  json["given"] = plan_json(question, other);
  json["fits"] = other.memory.total() <= limit;
  json["refusal"] = refusal;
  json["why"] = planning::why_slower(best, other, question.global_batch, question.cluster);
  return json.dump() + "\n";
}

}  // namespace tutti::cli
