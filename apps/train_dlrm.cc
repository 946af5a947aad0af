// train_dlrm: the deep learning recommendation model, alone or on the ranks of a world.
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/options/train_dlrm_options.h"
#include "apps/options/training_program.h"
#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/comm/agree.h"
#include "tutti/models/dlrm/printed_lines.h"
#include "tutti/models/dlrm/printer.h"
#include "tutti/models/dlrm/training.h"
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

int train(const tutti::cli::OptionParser& line, const tutti::dlrm::Options& options,
          const tutti::CheckpointerOptions& checkpoints) {
  using namespace tutti;
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
  const auto result = dlrm::run(world, options, architecture, sources, checkpoints);
  if (!result.training.stopped && options.report.json && world.rank() == 0) print_json(world, options, result);
  return exit_code(result.training);
}

}  // namespace

int main(int argc, char** argv) {
  tutti::cli::TrainDlrmCommand command;
  return tutti::cli::run_training_program(argc, argv,
                                          {"train_dlrm",
                                           "Trains the deep learning recommendation model (arXiv:1906.00091); on "
                                           "several ranks under tutti run, torchrun, mpirun or srun.",
                                           kFooter},
                                          train_dlrm_options(command), [&](const tutti::cli::OptionParser& line) {
                                            return train(line, command.options, command.checkpoints);
                                          });
}
