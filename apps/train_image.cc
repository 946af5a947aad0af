// train_image: a classifier on Fashion-MNIST, alone or on the ranks of a world.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "apps/options/train_image_options.h"
#include "apps/options/training_program.h"
#include "tutti/comm/agree.h"
#include "tutti/parallel/data_parallel/stats_json.h"
#include "tutti/runtime/init.h"
#include "tutti/tensor/compute.h"

namespace {

constexpr const char* kFooter = R"(
Give all ranks the same options. Rank 0 prints and saves.

Examples:
  train_image --epochs 5
  tutti run -n 2 train_image --optimizer adamw --lr 1e-3 --clip-grad-norm 1
  tutti run -n 2 train_image --trace trace.json --profile --max-steps 20
  tutti run -n 2 train_image --logical-ranks 4    the same weights, to the bit, as with -n 1 and -n 4
  tutti run -n 2 train_image --model mlp --save weights.safetensors
  tutti run -n 2 --max-restarts 3 train_image --save-dir runs/a --save-interval 100 --keep 3
  mpirun -np 2 train_image --json

Exit codes:
  0   trained
  1   a rank failed
  2   wrong usage, missing data, or ranks with different options
  75  the job was asked to stop, and has saved: start it again)";

// What is not known, such as the test accuracy of a run that was stopped, is null.
void print_json(const tutti::Group& world, const tutti::ImageTrainingOptions& options,
                const tutti::ImageTrainingResult& result) {
  const auto rounded = [](double value, double per_unit) { return std::round(value * per_unit) / per_unit; };
  const tutti::StepTiming& timing = result.training.timing;
  nlohmann::ordered_json json = {
      {"peer", "tutti"},
      {"torch", tutti::torch_version()},
      {"model", options.model},
      {"world", world.size()},
      {"batch_per_rank", options.batch_size},
      {"steps", timing.steps},
      {"ms_per_step", timing.steps > 0 ? rounded(1e3 * timing.wall_seconds / double(timing.steps), 1000) : 0.0},
      {"median_ms_per_step", rounded(1e3 * timing.median_seconds, 1000)},
      {"samples_per_s", rounded(timing.samples_per_s(), 10)},
      {"test_accuracy", result.test_accuracy},
      {"test_loss", result.test_loss},
      {"last_loss", result.training.last_loss.value_or(std::nan(""))},
      {"data_parallel", nlohmann::ordered_json::parse(tutti::to_json(result.parallel))}};
  if (result.training.stopped) json["stopped"] = true;
  if (tutti::scales_loss(options)) json["left_out"] = result.skipped;
  if (options.checkpoints.memory_copy_interval > 0)
    json["memory_copies"] = nlohmann::ordered_json::parse(tutti::to_json(result.training.copying));
  if (!options.checkpoints.folder.empty())
    json["checkpoints"] = nlohmann::ordered_json::parse(tutti::to_json(result.training.saving));
  fmt::print("{}\n", json.dump());
}

void print_summary(const tutti::Group& world, const tutti::ImageTrainingOptions& options,
                   const tutti::ImageTrainingResult& result) {
  fmt::print(stderr,
             "{}: {} rank{}, {:.1f} samples/s, communication exposed {:.1f}%{}, test accuracy {:.4f}, test loss "
             "{:.4f}\n",
             options.model, world.size(), world.size() == 1 ? "" : "s", result.training.timing.samples_per_s(),
             result.exposed_percent, world.size() == 1 ? "" : " on rank 0", result.test_accuracy, result.test_loss);
  if (result.skipped > 0)
    fmt::print(stderr, "{}: {} step{} skipped, because gradients overflowed in f16\n", options.model, result.skipped,
               result.skipped == 1 ? " was" : "s were");
}

int train(const tutti::cli::OptionParser& line, const tutti::cli::TrainImageCommand& command) {
  const auto train = tutti::load_fashion_mnist(command.data, tutti::Split::kTrain).or_throw();
  const auto test = tutti::load_fashion_mnist(command.data, tutti::Split::kTest).or_throw();
  const auto world = tutti::init();
  tutti::agree_on(world, "the ranks were started differently", line.compared({"--data", "--save", "--save-dir"}),
                  "start all ranks with the same options")
      .or_throw();
  const auto result = tutti::train_image_model(world, train, test, command.training);
  if (world.rank() == 0 && !result.training.stopped) print_summary(world, command.training, result);
  if (world.rank() == 0 && command.json) print_json(world, command.training, result);
  return tutti::exit_code(result.training);
}

}  // namespace

int main(int argc, char** argv) {
  tutti::cli::TrainImageCommand command;
  return tutti::cli::run_training_program(
      argc, argv,
      {"train_image",
       "Trains a classifier of Fashion-MNIST pictures; on several ranks under tutti run, torchrun, mpirun or srun.",
       kFooter},
      train_image_options(command), [&](const tutti::cli::OptionParser& line) { return train(line, command); });
}
