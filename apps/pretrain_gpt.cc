// pretrain_gpt: a GPT, alone or on a grid of ranks: tensor, sequence, pipeline, context and data parallel.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/options/answering.h"
#include "apps/options/command_line.h"
#include "apps/options/help_text.h"
#include "apps/options/pretrain_gpt_options.h"
#include "apps/options/tell_once.h"
#include "tutti/base/env.h"
#include "tutti/base/log.h"
#include "tutti/comm/agree.h"
#include "tutti/models/gpt/training.h"
#include "tutti/parallel/data_parallel/precision/mixed_precision.h"
#include "tutti/rendezvous/identity.h"
#include "tutti/runtime/init.h"
#include "tutti/tensor/compute.h"

namespace {

constexpr int kUsageError = 2;
constexpr const char* kFooter = R"(
Options and printed lines are those of Megatron-LM; docs/gpt.md lists the differences. Give all ranks the same options.
The last rank prints.

Examples:
  pretrain_gpt --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 64 --max-position-embeddings 64
      --micro-batch-size 4 --mock-data --vocab-size 127 --train-iters 20 --lr 1e-3 --eval-iters 2 --log-interval 5
  tutti data tokenize book.txt --output book
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
  const nlohmann::ordered_json json = {{"peer", "tutti"},
                                       {"torch", tutti::torch_version()},
                                       {"world", world.size()},
                                       {"steps", result.steps},
                                       {"median_ms_per_step", rounded(1e3 * result.median_seconds, 1000)},
                                       {"tokens_per_s", rounded(result.tokens_per_s, 10)},
                                       {"utilisation", rounded(result.utilisation, 1000)},
                                       {"last_loss", result.last_loss},
                                       {"validation_loss", result.validation_loss},
                                       {"test_loss", result.test_loss}};
  fmt::print("{}\n", json.dump());
}

struct Meaning {
  std::unique_ptr<tutti::Tokenizer> tokenizer;
  tutti::gpt::Options options;
  tutti::Options init;
};

int train(const tutti::cli::PretrainGptCommandLine& line, const Meaning& meaning) {
  using namespace tutti;
  const auto world = init(meaning.init);
  agree_on(world, "the ranks were started differently", line.texts(), "start all ranks with the same options")
      .or_throw();
  const auto planned = gpt::for_world(meaning.options, world.size()).or_throw();
  const auto result = gpt::pretrain(world, planned, meaning.tokenizer.get());
  if (result.stopped) return kLeftEarly;
  if (planned.report.json && world.rank() == world.size() - 1) print_json(world, result);
  return 0;
}

tutti::Status check_f16(const tutti::gpt::Options& options) {
  if (options.precision != tutti::gpt::Precision::kF16) return {};
  const auto can = tutti::check_computes_in(tutti::DType::kF16);
  if (can.ok()) return {};
  return tutti::cli::usage("--fp16: " + can.error().detail, "--bf16 has the range of f32 and needs no loss scale");
}

// All that can be wrong is found here, before this rank meets the others: on as many as the environment tells of.
tutti::Result<Meaning> interpret(const tutti::cli::PretrainGptCommandLine& line) {
  Meaning meaning;
  meaning.init.engine = TUTTI_TRY(line.backend());
  meaning.init.collective_timeout = TUTTI_TRY(line.collective_timeout());
  meaning.tokenizer = TUTTI_TRY(line.tokenizer());
  meaning.options = TUTTI_TRY(line.interpret(meaning.tokenizer.get()));
  TUTTI_TRY(check_f16(meaning.options));
  // What is wrong with the environment init() says.
  if (const auto who = tutti::rendezvous::identify({}, tutti::current_environment()); who.ok())
    (void)TUTTI_TRY(tutti::gpt::for_world(meaning.options, who->world_size));
  return meaning;
}

// By one rank, before it meets the others.
void warn_of_no_effect(const tutti::cli::PretrainGptCommandLine& line) {
  const auto who = tutti::rendezvous::identify({}, tutti::current_environment());
  if (who.ok() && who->rank != 0) return;
  for (const std::string& sentence : line.without_effect()) tutti::log::warn(sentence);
}

int act(const std::vector<std::string>& arguments) {
  tutti::cli::PretrainGptCommandLine line;
  CLI::App app(
      "Pre-trains a GPT as Megatron-LM does, on CPUs; on several ranks under tutti run, torchrun, mpirun or srun.",
      "pretrain_gpt");
  tutti::cli::set_help(app, kFooter);
  line.declare(app);
  std::string local_rank;
  tutti::cli::add_local_rank(app, local_rank);
  const auto tell_all = [&](const std::string& command, const tutti::Error& mistake) {
    tutti::cli::tell_once(command, line.with_rejected(mistake));
  };
  if (const auto code = tutti::cli::parse(app, arguments, tell_all)) return *code;
  const auto meaning = interpret(line);
  if (!meaning.ok()) {
    tutti::cli::tell_once("pretrain_gpt", meaning.error());
    return kUsageError;
  }
  return tutti::cli::run_training(arguments, local_rank, [&] {
    warn_of_no_effect(line);
    return train(line, *meaning);
  });
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::cli::answering("pretrain_gpt", [&] { return act({argv + 1, argv + argc}); });
}
