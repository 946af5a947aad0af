// A batch on each rank:
//
//   read and pool the rows of my tables, for all samples    lookups, until the busiest rank is done
//   send them to the ranks that have the samples            rows out, beside the bottom MLP
//   bottom MLP, interaction, top MLP, and back              dense compute
//   send the gradients of the pooled rows                   rows back, beside the backward pass of the bottom MLP
//   sum the gradients of MLPs and of replicated tables      averages
//   step the rows of my tables and the MLPs                 optimizer
//
// Lookups, steps of rows and the dot interaction take what table_time.h says. Where all ranks are on one node an owner
// writes pooled rows into the memory of their reader, so the exchange is two barriers.
#include "tutti/planning/training/recommendation_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tutti/base/text.h"
#include "tutti/planning/training/node_layout.h"
#include "tutti/planning/training/table_time.h"

namespace tutti {
namespace {

using planning::ReplicaSeconds, planning::seconds_of;

constexpr double kIndexBytes = 8 + 2 * 16;  // an index, and its use before and after sorting

PlannerOptions table_options(const RecommendationModel& model, int ranks, int batch) {
  return {.ranks = ranks,
          .batch = batch,
          .number_bytes = std::int64_t(model.number),
          .state_numbers_a_column = model.state_numbers_a_column,
          .state_numbers_a_row = model.state_numbers_a_row};
}

bool sends_rows(const Cluster& cluster, const RecommendationOptions& options) {
  int nodes = 0;
  for (const ClusterNodes& same : cluster.nodes) nodes += same.count;
  return cluster.devices() > 1 && (nodes > 1 || !options.shares_memory);
}

// An all_to_all in which rank r sends `sent[r]` bytes, evenly to all others. It ends when the busiest link does: that
// of a rank within its node, or the cards of a node, whichever way carries more.
double exchange_time(const Cluster& cluster, const std::vector<double>& sent) {
  const ClusterNetwork& network = cluster.network;
  const planning::NodeLayout nodes(cluster);
  const double ranks = double(sent.size());
  std::vector<double> here(std::size_t(nodes.count())), from(here), all(here);
  double everything = 0, inside = 0;
  for (int rank = 0; rank < cluster.devices(); ++rank) ++here[std::size_t(nodes.node_of(rank))];
  for (std::size_t rank = 0; rank < sent.size(); ++rank) {
    const std::size_t node = std::size_t(nodes.node_of(int(rank)));
    from[node] += sent[rank] * (ranks - here[node]) / (ranks - 1);
    all[node] += sent[rank];
    everything += sent[rank];
    if (here[node] > 1)
      inside = std::max(inside, sent[rank] * (here[node] - 1) / (ranks - 1) / network.inside.bandwidth);
  }
  if (here.size() == 1) return network.start + network.inside.latency + (ranks - 1) * network.inside.overhead + inside;
  double most = 0;
  for (std::size_t node = 0; node < here.size(); ++node)
    most = std::max({most, from[node], (everything - all[node]) * here[node] / (ranks - 1)});
  return network.start + network.between.latency + (ranks - 1) * network.between.overhead +
         std::max(inside, most / (network.cards * network.between.bandwidth));
}

// What the tables take of a step: the rank that has most to do, and what every rank does for its samples.
planning::TableTime tables_time(const RecommendationModel& model, const Cluster& cluster, const PlannerOptions& tables,
                                const TablePlacement& placement) {
  std::vector<double> forward(static_cast<std::size_t>(tables.ranks)), backward(forward);
  planning::TableTime time;
  for (std::size_t t = 0; t < model.tables.size(); ++t) {
    const TablePlacement::Table& placed = placement.tables[t];
    for (const TableShard& shard : placed.shards) {
      const planning::TableTime part = planning::time_of_part(cluster, model.tables[t], placed.sharding, shard, tables);
      forward[std::size_t(shard.rank)] += part.forward;
      backward[std::size_t(shard.rank)] += part.backward;
    }
    const planning::TableTime reader = planning::time_of_reader(cluster, model.tables[t], placed, tables);
    time.forward += reader.forward;
    time.backward += reader.backward;
  }
  time.forward += *std::max_element(forward.begin(), forward.end());
  time.backward += *std::max_element(backward.begin(), backward.end());
  return time;
}

RecommendationTime time_of(const RecommendationModel& model, const Cluster& cluster, int batch,
                           const RecommendationOptions& options, const PlacementCost& cost,
                           const planning::TableTime& tables) {
  const auto most = [](const std::vector<double>& values) { return *std::max_element(values.begin(), values.end()); };
  const int ranks = cluster.devices();
  const double samples = double(batch) / ranks, slower = planning::slowness(cluster);
  const ReplicaSeconds bottom = seconds_of(cluster, model.bottom, samples, model.number);
  const ReplicaSeconds top = seconds_of(cluster, model.top, samples, model.number);
  const double parameters = model.bottom.parameters() + model.top.parameters();
  const auto stream = [&](double bytes, double calls) {
    return slower * planning::element_time(cluster.device, {.bytes = bytes, .calls = calls});
  };
  const planning::TableTime interaction = planning::time_of_interaction(cluster, model.pairs, model.dim, samples);
  RecommendationTime time{.dense = bottom.forward + bottom.backward + top.forward + top.backward + interaction.forward +
                                   interaction.backward,
                          .lookups = tables.forward,
                          .optimizer = tables.backward + stream(parameters * model.number * (3 + 2 * model.dense_state),
                                                                planning::kUpdateKernels)};
  if (ranks == 1) return time;
  const planning::GroupPlace all = planning::place_of_all(cluster);
  const auto sum_time = [&](double bytes) {
    return collective_time(cluster.network, planning::ClusterVerb::kAllReduce, all, bytes);
  };
  const bool sends = sends_rows(cluster, options);
  double exchange = sum_time(8);  // a barrier
  if (sends) {
    std::vector<double> sent = cost.bytes_sent;
    for (double& bytes : sent) bytes *= options.wire;
    exchange = most(sent) > 0 ? exchange_time(cluster, sent) : 0;
  }
  time.rows_out = planning::exposed_time(cluster, exchange, bottom.forward);
  time.rows_back = planning::exposed_time(cluster, exchange, bottom.backward);
  time.averages = planning::exposed_sum(cluster, planning::ClusterVerb::kAllReduce, parameters * model.number,
                                        bottom.backward + top.backward);
  // On one node the bytes of replicated tables are among those of the optimizer.
  if (cost.bytes_reduced > 0) time.averages += sum_time(sends ? cost.bytes_reduced : 8);
  return time;
}

// What a rank needs besides its tables.
RecommendationMemory dense_memory(const RecommendationModel& model, int ranks, int batch) {
  const double parameters = (model.bottom.parameters() + model.top.parameters()) * model.number;
  double kept = 0;
  for (const ReplicaModel* part : {&model.bottom, &model.top})
    for (const ReplicaLayer& layer : part->layers) kept += layer.kept;
  const double samples = double((batch + ranks - 1) / ranks);
  return {.weights = parameters,
          .gradients = parameters,
          .optimizer = parameters * model.dense_state,
          .activations = kept * samples * model.number,
          .rows = 2 * model.pooled_numbers() * samples * model.number,
          .buffers = ranks > 1 ? parameters : 0};
}

RankedPlacement ranked(const RecommendationModel& model, const Cluster& cluster, int batch,
                       const RecommendationOptions& options, const std::string& name, const TablePlacement& placement) {
  const int ranks = cluster.devices();
  PlannerOptions tables = table_options(model, ranks, batch);
  const PlacementCost cost = cost_of(placement, model.tables, tables);
  RankedPlacement plan;
  plan.name = name;
  plan.placement = placement;
  plan.time = time_of(model, cluster, batch, options, cost, tables_time(model, cluster, tables, placement));
  plan.imbalance = cost.imbalance;
  tables.state_numbers_a_column = tables.state_numbers_a_row = 0;
  const std::vector<std::int64_t> rows = cost_of(placement, model.tables, tables).bytes_kept;
  std::vector<double> lookups(static_cast<std::size_t>(ranks));  // of a rank, in a batch
  for (std::size_t t = 0; t < model.tables.size(); ++t)
    for (const TableShard& shard : placement.tables[t].shards) {
      const double mine = planning::lookups_of_part(model.tables[t], placement.tables[t].sharding, shard, tables);
      lookups[std::size_t(shard.rank)] += mine;
      plan.lookups += mine;
    }
  for (std::size_t rank = 0; rank < std::size_t(ranks); ++rank) {
    RecommendationMemory memory = dense_memory(model, ranks, batch);
    memory.tables = double(rows[rank]);
    memory.table_state = double(cost.bytes_kept[rank] - rows[rank]);
    memory.lookups = lookups[rank] * kIndexBytes;
    memory.buffers += cost.bytes_reduced;
    if (sends_rows(cluster, options)) memory.rows += 2 * cost.bytes_sent[rank];  // at the owner
    plan.memory.push_back(memory);
    if (memory.total() > plan.most_memory()) plan.fullest = int(rank);
  }
  return plan;
}

// How much longer the ranks of a node send a byte than all of them move one in memory.
double sent_weight(const Cluster& cluster) {
  const int nodes = planning::NodeLayout(cluster).count();
  if (nodes == 1) return cluster.device.stream_bandwidth / cluster.network.inside.bandwidth;
  return cluster.device.stream_bandwidth * cluster.devices() / nodes /
         (cluster.network.between.bandwidth * cluster.network.cards);
}

// The placements that may be chosen, each once.
std::vector<RankedPlacement> placements(const RecommendationModel& model, const Cluster& cluster, int batch,
                                        const RecommendationOptions& options, double limit) {
  const int ranks = cluster.devices();
  std::vector<RankedPlacement> made;
  const auto may = [&](const std::string& name) {
    return options.placements.empty() ||
           std::find(options.placements.begin(), options.placements.end(), name) != options.placements.end();
  };
  const auto add = [&](const std::string& name, const Result<TablePlacement>& placement) {
    if (!placement.ok()) return;
    if (std::any_of(made.begin(), made.end(),
                    [&](const RankedPlacement& other) { return other.placement == *placement; }))
      return;
    made.push_back(ranked(model, cluster, batch, options, name, *placement));
  };
  PlannerOptions limited = table_options(model, ranks, batch);
  limited.memory_bytes = std::max<std::int64_t>(1, std::int64_t(limit - dense_memory(model, ranks, batch).total()));
  for (const std::string& name : placement_names()) {
    if (!may(name)) continue;
    const PlannerOptions unlimited = table_options(model, ranks, batch);
    add(name, place_by_name(name, model.tables, unlimited));
  }
  // By the network, and within the limit, where train_dlrm's own choice knows neither.
  if (!may(kNetworkPlacement) || ranks == 1) return made;
  const double weight = sends_rows(cluster, options) ? sent_weight(cluster) : 0;
  for (const double factor : {1.0, 0.25, 4.0}) {
    PlannerOptions tables = limited;
    tables.sent_weight = factor * weight * options.wire;
    add(kNetworkPlacement, plan_tables(model.tables, tables));
    if (weight == 0) break;
  }
  return made;
}

Status check_inputs(const RecommendationModel& model, const Cluster& cluster, int batch) {
  TUTTI_TRY(check(cluster));
  if (batch < 1) return invalid_argument(fmt::format("a global batch of {} samples, expected 1 or more", batch));
  if (model.tables.empty()) return invalid_argument("a recommendation model without tables");
  for (const ClusterNodes& nodes : cluster.nodes)
    if (nodes.cores == 0)
      return Error{.code = Code::kUnsupported,
                   .detail = fmt::format("cluster {} has GPUs, and tables are in the memory of the host, which it does "
                                         "not describe",
                                         cluster.name),
                   .hint = "--cluster cpu, or a file of `tutti plan measure`"};
  return {};
}

}  // namespace

double RecommendationModel::table_numbers() const {
  double sum = 0;
  for (const TableSpec& table : tables) sum += double(table.rows) * double(table.dim);
  return sum;
}

double RecommendationModel::pooled_numbers() const {
  double sum = 0;
  for (const TableSpec& table : tables) sum += double(table.dim);
  return sum;
}

void set_dense_layers(RecommendationModel& model, std::span<const std::int64_t> bottom, std::int64_t vectors,
                      std::int64_t dim, bool dot, std::span<const std::int64_t> top) {
  model.bottom = mlp_model(bottom);
  const double read = double(vectors * dim), width = double(top.front());
  model.dim = double(dim);
  model.pairs = dot ? width - double(dim) : 0;
  model.top = {.name = "top", .layers = {{.streamed = dot ? 0 : read + width, .kept = read}}};
  for (ReplicaLayer layer : mlp_model(top).layers) {
    layer.has_input_gradient = true;
    model.top.layers.push_back(layer);
  }
}

Result<RecommendationPlans> plan_recommendation(const RecommendationModel& model, const Cluster& cluster, int batch,
                                                const RecommendationOptions& options) {
  TUTTI_TRY(check_inputs(model, cluster, batch));
  RecommendationPlans plans;
  plans.limit = options.memory > 0 ? options.memory : usable_memory(cluster);
  for (RankedPlacement& plan : placements(model, cluster, batch, options, plans.limit))
    (plan.most_memory() <= plans.limit ? plans.best : plans.unfit).push_back(std::move(plan));
  const auto by_time = [](const auto& one, const auto& other) { return one.time.step() < other.time.step(); };
  const auto by_memory = [](const auto& one, const auto& other) { return one.most_memory() < other.most_memory(); };
  std::stable_sort(plans.best.begin(), plans.best.end(), by_time);
  if (options.goal == PlanGoal::kMemory) std::stable_sort(plans.best.begin(), plans.best.end(), by_memory);
  std::stable_sort(plans.unfit.begin(), plans.unfit.end(), by_memory);
  return plans;
}

RankedPlacement evaluate(const RecommendationModel& model, const Cluster& cluster, int batch,
                         const RecommendationOptions& options, const std::string& name,
                         const TablePlacement& placement) {
  check_inputs(model, cluster, batch).or_throw();
  check(placement, model.tables).or_throw();
  return ranked(model, cluster, batch, options, name, placement);
}

namespace planning {

std::vector<std::pair<const char*, double>> parts_of(const RecommendationTime& time) {
  return {{"dense compute", time.dense}, {"lookups", time.lookups},   {"rows out", time.rows_out},
          {"rows back", time.rows_back}, {"averages", time.averages}, {"optimizer", time.optimizer}};
}

std::vector<std::pair<const char*, double>> parts_of(const RecommendationMemory& memory) {
  return {{"tables", memory.tables},       {"table state", memory.table_state}, {"weights", memory.weights},
          {"gradients", memory.gradients}, {"optimizer", memory.optimizer},     {"activations", memory.activations},
          {"rows", memory.rows},           {"lookups", memory.lookups},         {"buffers", memory.buffers}};
}

std::string why_slower(const RankedPlacement& best, const RankedPlacement& other) {
  const double more = other.time.step() - best.time.step();
  if (std::abs(more) < 0.002 * best.time.step()) return "as fast: within 0.2 %";
  const auto ours = parts_of(best.time), theirs = parts_of(other.time);
  std::size_t worst = 0;
  for (std::size_t i = 1; i < ours.size(); ++i)
    if (theirs[i].second - ours[i].second > theirs[worst].second - ours[worst].second) worst = i;
  const std::string part = theirs[worst].first;
  std::string cause;
  if (part == "lookups" || part == "optimizer") {
    if (other.lookups > 1.01 * best.lookups)
      cause = fmt::format("its ranks look up {:.2f} times as many rows", other.lookups / best.lookups);
    else if (other.imbalance > 1.01)
      cause = fmt::format("its busiest rank moves {:.2f} times the mean", other.imbalance);
  }
  if (part == "rows out" || part == "rows back") cause = "more pooled rows are sent to other ranks";
  if (part == "averages") cause = "gradients of whole tables are summed";
  return fmt::format("{:+.1f} %, {} {}: {} more in {}{}{}", 100 * more / best.time.step(), seconds_text(std::abs(more)),
                     more < 0 ? "less" : "more", seconds_text(std::max(theirs[worst].second - ours[worst].second, 0.0)),
                     part, cause.empty() ? "" : ": ", cause);
}

std::string why_not_fit(const RankedPlacement& plan, double limit) {
  const RecommendationMemory& memory = plan.memory.at(std::size_t(plan.fullest));
  const auto kinds = parts_of(memory);
  const auto most =
      *std::max_element(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto words = [](double bytes) { return bytes_text(std::uint64_t(bytes)); };
  const std::string kind = most.first;
  return fmt::format("needs {} of {} on rank {}, {} of them {}; {} would help", words(memory.total()), words(limit),
                     plan.fullest, words(most.second), kind,
                     kind.starts_with("table") ? "more ranks"
                     : kind == "buffers"       ? "another placement"
                                               : "a smaller batch");
}

}  // namespace planning
}  // namespace tutti
