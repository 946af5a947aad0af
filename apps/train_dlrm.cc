// train_dlrm: the deep learning recommendation model, alone or on the ranks of a world.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/options/train_dlrm_options.h"
#include "apps/options/training_program.h"
#include "bench/machine/machine.h"
#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/comm/agree.h"
#include "tutti/models/dlrm/auto_parallel.h"
#include "tutti/models/dlrm/printed_lines.h"
#include "tutti/models/dlrm/printer.h"
#include "tutti/models/dlrm/training.h"
#include "tutti/planning/tables/plan_file.h"
#include "tutti/planning/training/cluster_presets.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/runtime/init.h"
#include "tutti/tensor/compute.h"
#include "tutti/tensor/rank_device.h"

namespace {

constexpr const char* kFooter = R"(
Options, defaults and printed lines are those of dlrm_s_pytorch.py; docs/how-to/train-dlrm.md lists the differences.
Give all ranks the same options. Rank 0 prints.

Examples:
  train_dlrm --mini-batch-size 2 --data-size 6
  tutti run -n 2 train_dlrm --arch-embedding-size 1000000-1000000 --arch-sparse-feature-size 64 --arch-mlp-bot 13-512-64
      --arch-mlp-top 512-256-1 --mini-batch-size 2048 --num-batches 100 --print-freq 10 --print-time
  tutti data clicks --output clicks
  tutti run -n 2 train_dlrm --data-generation dataset --processed-data-file clicks --arch-mlp-bot 13-64-16
      --arch-sparse-feature-size 16 --arch-mlp-top 64-1 --loss-function bce --optimizer rwsadagrad --learning-rate 0.03
      --mini-batch-size 256 --print-freq 1000 --test-freq 1000 --mlperf-logging --save-model model

Exit codes:
  0   trained
  1   a rank failed
  2   wrong usage, missing data, or ranks with different options
  75  the job was asked to stop, and has saved in --save-dir: start it again)";

void print_json(const tutti::Group& world, const tutti::dlrm::Options& options, const tutti::dlrm::RunResult& result) {
  const auto rounded = [](double value, double per_unit) { return std::round(value * per_unit) / per_unit; };
  const tutti::StepTiming& timing = result.timing;
  const double steps = timing.samples / double(options.training.batch * options.training.accumulate);
  const double seconds = timing.step_seconds;
  nlohmann::ordered_json json = {{"peer", "tutti"},
                                 {"torch", tutti::torch_version()},
                                 {"world", world.size()},
                                 {"steps", result.training.steps + result.inferred_batches},
                                 {"ms_per_step", steps > 0 ? rounded(1e3 * seconds / steps, 100) : 0.0},
                                 {"samples_per_s", seconds > 0 ? rounded(timing.samples / seconds, 10) : 0.0},
                                 {"loss", result.last_loss}};
  if (options.report.test_freq > 0 || options.inference.only) json["test_accuracy"] = result.accuracy;
  if (options.report.mlperf_logging) json["test_auc"] = result.auc;
  fmt::print("{}\n", json.dump());
}

// DLRM_ALLTOALL_IMPL chooses how rows are sent. Where ranks share memory no rows are sent.
void report_exchange(const tutti::Group& world, const tutti::dlrm::Options& options,
                     const tutti::dlrm::Printer& printer) {
  const auto chosen = tutti::env("DLRM_ALLTOALL_IMPL");
  if (!chosen) return;
  if (world.nodes() > 1 || (options.placement.links_only && world.size() > 1))
    return printer.line("Using DLRM_ALLTOALL_IMPL=" + *chosen);
  if (world.rank() != 0) return;
  tutti::log::warn(fmt::format("DLRM_ALLTOALL_IMPL={} has no effect: {}", *chosen,
                               world.size() == 1 ? "there is one rank"
                                                 : "all ranks share the memory of one host; --no-shared-tables "
                                                   "sends rows anyway"));
}

// The products of the MLPs for the samples of a rank: the four with most operations.
std::vector<tutti::bench::ProductShape> shapes_of(const tutti::dlrm::Architecture& architecture, std::int64_t samples) {
  constexpr std::size_t kMostShapes = 4;
  constexpr double kMostOperations = 4e9;  // of a product that is measured
  std::vector<tutti::bench::ProductShape> shapes;
  const auto operations = [](const auto& shape) { return 2.0 * shape.m * shape.n * shape.k; };
  for (const auto* sizes : {&architecture.bottom, &architecture.top})
    for (std::size_t i = 1; i < sizes->size(); ++i) {
      tutti::bench::ProductShape shape{int(std::clamp<std::int64_t>(samples, 1, 1 << 20)), int((*sizes)[i]),
                                       int((*sizes)[i - 1])};
      while (shape.m > 64 && operations(shape) > kMostOperations) shape.m /= 2;
      if (std::find(shapes.begin(), shapes.end(), shape) == shapes.end()) shapes.push_back(shape);
    }
  std::stable_sort(shapes.begin(), shapes.end(),
                   [&](const auto& one, const auto& other) { return operations(one) > operations(other); });
  if (shapes.size() > kMostShapes) shapes.resize(kMostShapes);
  return shapes;
}

// The options with the placement that --parallel auto chooses. All ranks measure the same figures.
tutti::dlrm::Options choose(const tutti::Group& world, const tutti::cli::TrainDlrmCommand& command,
                            const tutti::dlrm::Architecture& architecture, const std::string& given) {
  using namespace tutti;
  const auto samples = dlrm::samples_of_step(command.options.training) / world.size();
  const Cluster cluster =
      command.cluster.empty()
          ? bench::measure_machine(world, shapes_of(architecture, samples), nullptr).or_throw().cluster
          : find_cluster(command.cluster).or_throw();
  const auto plans = dlrm::choose_placement(command.options, architecture, cluster, given).or_throw();
  const RankedPlacement& best = plans.best.at(0);
  const auto tables = table_specs(architecture, 1);
  agree_on(world, "--parallel auto chose differently", {{"the placement", plan_text(best.placement, tables)}},
           "give all hosts the same --cluster")
      .or_throw();
  if (world.rank() == 0) {
    constexpr double kGiB = 1 << 30;
    constexpr std::size_t kRunnersUp = 2;
    fmt::print("parallel auto: {} placement{}: about {:.3g} ms a step, {:.3g} GiB on the fullest rank\n", best.name,
               given.empty() && command.options.placement.plan_file.empty() ? "" : " (given)", 1e3 * best.time.step(),
               best.most_memory() / kGiB);
    if (best.name != kNetworkPlacement && command.options.placement.plan_file.empty())
      fmt::print("parallel auto: the same by hand: --placement {}\n", best.name);
    for (std::size_t i = 1; i < std::min(plans.best.size(), 1 + kRunnersUp); ++i)
      fmt::print("parallel auto: instead of {}: {}\n", plans.best[i].name, planning::why_slower(best, plans.best[i]));
  }
  return dlrm::with_placement(command.options, best);
}

// Before ranks connect, with the number of ranks in the environment; init() reports what is wrong with that.
tutti::Status check_choice(const tutti::cli::TrainDlrmCommand& command) {
  if (command.cluster.empty()) return {};
  const tutti::Cluster cluster = TUTTI_TRY(tutti::find_cluster(command.cluster));
  const auto who = tutti::rendezvous::identify({}, tutti::current_environment());
  if (!who.ok() || cluster.devices() == who->world_size) return {};
  return tutti::cli::usage(fmt::format("--cluster {} has {} {}, and {} {}", command.cluster, cluster.devices(),
                                       cluster.devices() == 1 ? "device" : "devices", who->world_size,
                                       who->world_size == 1 ? "rank trains" : "ranks train"),
                           "tutti plan measure -n N measures as many ranks as train");
}

int train(const tutti::cli::OptionParser& line, const tutti::cli::TrainDlrmCommand& command) {
  using namespace tutti;
  const dlrm::Options& options = command.options;
  auto sources = dlrm::open_sources(options).or_throw();
  const auto& shape = sources.train->shape();
  const auto architecture =
      dlrm::architecture_of(options.architecture, shape.dense_features, shape.rows, sources.where).or_throw();
  Options init_options;
  init_options.engine = cli::engine_of(options.backend);
  const auto world = init(init_options);
  auto compared = line.compared();
  compared.emplace_back("DLRM_ALLTOALL_IMPL", env("DLRM_ALLTOALL_IMPL").value_or("alltoall"));
  agree_on(world, "the ranks were started differently", compared, "start all ranks with the same options").or_throw();
  const dlrm::Printer printer(world, options.report.print_all);
  if (world.size() > 1) {
    dlrm::Printer::line_of_all(dlrm::world_line(world.size(), world.rank(), world.local_rank()));
    printer.line(fmt::format("Running on {} ranks using {} backend", world.size(),
                             options.backend.empty() ? "tutti" : options.backend));
  }
  report_exchange(world, options, printer);
  printer.line(rank_device(world, options.device).is_cpu() ? "Using CPU..." : "Using 1 GPU(s)...");
  const std::string given = line.texts().is_given("--placement") ? options.placement.placement : "";
  const auto chosen = command.chooses_parallel ? choose(world, command, architecture, given) : options;
  const auto result = dlrm::run(world, chosen, architecture, sources, command.checkpoints);
  if (!result.training.stopped && options.report.json && world.rank() == 0) print_json(world, options, result);
  return exit_code(result.training);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tutti::cli;
  TrainDlrmCommand command;
  OptionTable table = train_dlrm_options(command);
  table.checks.emplace_back([&](const OptionTexts&) { return check_choice(command); });
  return run_training_program(argc, argv,
                              {"train_dlrm",
                               "Trains the deep learning recommendation model (arXiv:1906.00091); on "
                               "several ranks under tutti run, torchrun, mpirun or srun.",
                               kFooter},
                              std::move(table), [&](const OptionParser& line) { return train(line, command); });
}
