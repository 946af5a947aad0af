// pretrain_gpt: a GPT, alone or on a grid of ranks: tensor, sequence, pipeline, context and data parallel.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/options/pretrain_gpt_options.h"
#include "apps/options/training_program.h"
#include "bench/machine/machine.h"
#include "tutti/base/env.h"
#include "tutti/base/text.h"
#include "tutti/comm/agree.h"
#include "tutti/models/gpt/auto_parallel.h"
#include "tutti/models/gpt/training.h"
#include "tutti/parallel/data_parallel/precision/mixed_precision.h"
#include "tutti/planning/training/cluster_presets.h"
#include "tutti/planning/training/explain.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/runtime/init.h"
#include "tutti/tensor/compute.h"

namespace {

constexpr const char* kFooter = R"(
Options and printed lines are those of Megatron-LM; docs/how-to/migrate-from-megatron.md lists the differences.
Give all ranks the same options. The last rank prints.

Examples:
  pretrain_gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64
      --micro-batch-size 4 --mock-data --vocab-size 127 --train-iters 20 --lr 1e-3 --eval-iters 2 --log-interval 5
  tutti data tokenize book.txt --output book --documents paragraph --append-eod
  tutti run -n 4 pretrain_gpt --tensor-model-parallel-size 2 --pipeline-model-parallel-size 2 --sequence-parallel
      --num-layers 4 --hidden-size 256 --num-attention-heads 8 --seq-length 256 --max-position-embeddings 256
      --micro-batch-size 4 --global-batch-size 32 --data-path book --tokenizer-type byte --train-iters 1000 --lr 6e-4
      --lr-warmup-iters 50 --lr-decay-style cosine --min-lr 6e-5 --save runs/book --save-interval 100 --load runs/book
  pretrain_gpt ... --load runs/book --skip-train --eval-iters 0 --generate "Once upon"

Exit codes:
  0   trained
  1   a rank failed, or a file of tokens or of a checkpoint is damaged
  2   wrong usage, missing data or data of another vocabulary, a malformed tokenizer file, a checkpoint of another model,
      or ranks with different options
  75  the job was asked to stop, and has saved in --save: start it again)";

void print_json(const tutti::Group& world, const tutti::gpt::RunResult& result) {
  const auto rounded = [](double value, double per_unit) { return std::round(value * per_unit) / per_unit; };
  const nlohmann::ordered_json json = {
      {"peer", "tutti"},
      {"torch", tutti::torch_version()},
      {"world", world.size()},
      {"steps", result.training.steps},
      {"median_ms_per_step", rounded(1e3 * result.training.timing.median_seconds, 1000)},
      {"tokens_per_s", rounded(result.tokens_per_s, 10)},
      {"utilisation", rounded(result.utilisation, 1000)},
      {"last_loss", result.training.last_loss.value_or(0)},
      {"validation_loss", result.validation_loss},
      {"test_loss", result.test_loss}};
  fmt::print("{}\n", json.dump());
}

// The linear layers of a block for one sample and for several, by the tensor ranks of a host.
std::vector<tutti::bench::ProductShape> shapes_of(const tutti::TransformerConfig& model) {
  std::vector<tutti::bench::ProductShape> shapes;
  for (const int samples : {1, 8})
    for (const int tensor : {1, 2})
      shapes.insert(shapes.end(), {{samples * model.sequence_length, model.ffn / tensor, model.hidden},
                                   {samples * model.sequence_length, model.hidden, model.hidden / tensor}});
  return shapes;
}

// The options as --parallel auto divides them. All ranks measure the same figures, and choose the same plan.
tutti::gpt::Options choose(const tutti::Group& world, const tutti::cli::PretrainGptCommand& command) {
  using namespace tutti;
  const auto& options = command.options;
  const Cluster cluster = command.cluster.empty()
                              ? bench::measure_machine(world, shapes_of(options.model), nullptr).or_throw().cluster
                              : find_cluster(command.cluster).or_throw();
  const auto plans = gpt::choose_parallel(options, cluster, command.given_parts).or_throw();
  const std::string best = to_string(plans[0].plan);
  agree_on(world, "--parallel auto chose differently", {{"the plan", best}}, "give all hosts the same --cluster")
      .or_throw();
  if (world.rank() == world.size() - 1) {
    constexpr double kGiB = 1 << 30;
    fmt::print("parallel auto: {}: about {:.3g} ms a step, {:.3g} GiB on the fullest rank\n", best,
               1e3 * plans[0].time.step(), plans[0].memory.total() / kGiB);
    fmt::print("parallel auto: the same by hand: {}\n",
               join(planning::program_options(plans[0].plan, int(options.batches.global_batch)), " "));
    for (std::size_t i = 1; i < plans.size(); ++i)
      fmt::print("parallel auto: instead of {}: about {:.3g} ms\n", to_string(plans[i].plan),
                 1e3 * plans[i].time.step());
  }
  return gpt::with_plan(options, plans[0].plan);
}

int train(const tutti::cli::OptionParser& line, const tutti::cli::PretrainGptCommand& command) {
  using namespace tutti;
  Options options;
  options.engine = cli::engine_of(command.backend);
  options.collective_timeout = command.collective_timeout;
  const auto world = init(options);
  agree_on(world, "the ranks were started differently", line.compared(), "start all ranks with the same options")
      .or_throw();
  const auto options_of_ranks = command.chooses_parallel ? choose(world, command) : command.options;
  const auto planned = gpt::for_world(options_of_ranks, world.size()).or_throw();
  const auto result = gpt::pretrain(world, planned, command.tokenizer.get());
  if (!result.training.stopped && planned.report.json && world.rank() == world.size() - 1) print_json(world, result);
  return exit_code(result.training);
}

tutti::Status check_choice(const tutti::cli::PretrainGptCommand& command, int world) {
  if (!command.cluster.empty()) {
    const tutti::Cluster cluster = TUTTI_TRY(tutti::find_cluster(command.cluster));
    if (cluster.devices() != world)
      return tutti::cli::usage(
          fmt::format("--cluster {} has {} {}, and {} {} train", command.cluster, cluster.devices(),
                      cluster.devices() == 1 ? "device" : "devices", world, world == 1 ? "rank" : "ranks"),
          "tutti plan measure -n N measures as many ranks as train");
  }
  return tutti::gpt::check_can_choose(command.options, world, command.given_parts);
}

// What the table of options cannot know: whether this LibTorch multiplies f16, and the number of ranks. Every rank
// checks this before it connects to the others, with the number of ranks in the environment.
tutti::Status check(const tutti::cli::PretrainGptCommand& command) {
  const auto& options = command.options;
  if (options.model.precision == tutti::Precision::kF16) {
    if (const auto can = tutti::check_computes_in(tutti::DType::kF16); !can.ok())
      return tutti::cli::usage("--fp16: " + can.error().detail, "--bf16 has the range of f32 and needs no loss scale");
  }
  // init() reports what is wrong with the environment.
  const auto who = tutti::rendezvous::identify({}, tutti::current_environment());
  if (!who.ok()) return {};
  if (command.chooses_parallel) return check_choice(command, who->world_size);
  return tutti::gpt::for_world(options, who->world_size).status();
}

}  // namespace

int main(int argc, char** argv) {
  using namespace tutti::cli;
  PretrainGptCommand command;
  OptionTable table = pretrain_gpt_options(command);
  table.checks.emplace_back([&](const OptionTexts&) { return check(command); });
  return run_training_program(argc, argv,
                              {"pretrain_gpt",
                               "Pre-trains a GPT as Megatron-LM does; on several ranks under tutti run, "
                               "torchrun, mpirun or srun.",
                               kFooter},
                              std::move(table), [&](const OptionParser& line) { return train(line, command); });
}
