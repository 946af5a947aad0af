// train_image: a classifier on Fashion-MNIST, alone or on the ranks of a world.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/command_line.h"
#include "tutti/base/log.h"
#include "tutti/models/image/train.h"
#include "tutti/runtime/init.h"
#include "tutti/tensor/compute.h"

namespace {

using tutti::Result;

constexpr int kUsageError = 2;
constexpr const char* kFooter = R"(
All ranks must be given the same options; rank 0 prints and saves.

Examples:
  train_image --epochs 5
  tutti run -n 2 train_image --model mlp --save weights.safetensors
  mpirun -np 2 train_image --json

Exit codes: 0 trained; 1 a rank failed; 2 wrong usage, data that is missing, or ranks with different options.)";

// The options as text; ImageTrainingOptions holds what they mean.
struct Texts {
  std::string data = tutti::kFashionMnistFolder, model = "cnn", save, overlap = "auto", sharded = "auto";
  std::string batch_size = "64", epochs = "1", max_steps = "0", lr = "0.05", momentum = "0.9", seed = "0";
  std::string log_every = "1";
  bool views = false, no_heap = false, json = false;
};

void declare(CLI::App& app, Texts& texts) {
  app.set_help_flag("-h,--help", "this text");
  app.footer(kFooter);
  app.get_formatter()->column_width(34);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  const auto add = [&](const char* group, const char* name, std::string& target, const char* words, const char* type) {
    app.add_option(name, target, words)->group(group)->type_name(type);
  };
  const auto add_flag = [&](const char* group, const char* name, bool& target, const char* words) {
    app.add_flag(name, target, words)->group(group);
  };
  add("Data", "--data", texts.data, "folder with the four Fashion-MNIST files (where Debian's package puts them)",
      "DIR");
  add("Data", "--batch-size", texts.batch_size, "samples per rank and step (64)", "N");
  add("Data", "--epochs", texts.epochs, "times through the training set (1)", "N");
  add("Data", "--max-steps", texts.max_steps, "stop an epoch after this many steps; 0 (default): never", "N");
  add("Model", "--model", texts.model, "cnn (default, 1.2 M parameters) or mlp (20 M)", "NAME");
  add("Model", "--lr", texts.lr, "learning rate (0.05)", "X");
  add("Model", "--momentum", texts.momentum, "of stochastic gradient descent (0.9)", "X");
  add("Model", "--seed", texts.seed, "of the weights and of the order of samples (0)", "N");
  add("Output", "--save", texts.save, "write the weights to this safetensors file", "FILE");
  add("Output", "--log-every", texts.log_every, "seconds between lines of progress (1); 0: every step, negative: none",
      "X");
  add_flag("Output", "--json", texts.json, "end with one line of JSON on standard output");
  add("Speed", "--overlap", texts.overlap, "communicate while computing: auto (default), on, off", "WHEN");
  add("Speed", "--sharded", texts.sharded,
      "each rank steps its part of large weights for all: auto (default; on one host), on, off", "WHEN");
  add_flag("Speed", "--views", texts.views, "gradients are windows into the buckets");
  add_flag("Speed", "--no-heap", texts.no_heap, "do not place large tensors in shared memory");
}

Result<tutti::ImageTrainingOptions> interpret(const Texts& texts) {
  using tutti::cli::choose, tutti::cli::real_number, tutti::cli::whole_number;
  constexpr double kAny = std::numeric_limits<double>::max();
  tutti::ImageTrainingOptions training;
  (void)TUTTI_TRY(choose("model", texts.model, {"cnn", "mlp"}));
  training.model = texts.model;
  training.batch_size = std::size_t(TUTTI_TRY(whole_number("--batch-size", texts.batch_size, 1, 1'000'000'000)));
  training.epochs = int(TUTTI_TRY(whole_number("--epochs", texts.epochs, 1, 1'000'000'000)));
  training.max_steps = TUTTI_TRY(whole_number("--max-steps", texts.max_steps, 0, 1'000'000'000));
  training.lr = TUTTI_TRY(real_number("--lr", texts.lr, 0, kAny));
  training.momentum = TUTTI_TRY(real_number("--momentum", texts.momentum, 0, 1));
  training.seed =
      std::uint64_t(TUTTI_TRY(whole_number("--seed", texts.seed, 0, std::numeric_limits<std::int64_t>::max())));
  training.log_every = TUTTI_TRY(real_number("--log-every", texts.log_every, -kAny, kAny));
  training.save = texts.save;
  constexpr tutti::Overlap kOverlaps[] = {tutti::Overlap::kAuto, tutti::Overlap::kOn, tutti::Overlap::kOff};
  training.parallel.overlap = kOverlaps[TUTTI_TRY(choose("--overlap", texts.overlap, {"auto", "on", "off"}))];
  constexpr tutti::Sharding kShardings[] = {tutti::Sharding::kAuto, tutti::Sharding::kOn, tutti::Sharding::kOff};
  training.sharding = kShardings[TUTTI_TRY(choose("--sharded", texts.sharded, {"auto", "on", "off"}))];
  training.parallel.gradients_as_views = texts.views;
  training.parallel.heap_tensors = !texts.no_heap;
  return training;
}

void print_json(const tutti::Group& world, const tutti::ImageTrainingOptions& options,
                const tutti::ImageTrainingResult& result) {
  const auto rounded = [](double value, double per_unit) { return std::round(value * per_unit) / per_unit; };
  nlohmann::ordered_json json = {
      {"peer", "tutti"},
      {"torch", tutti::torch_version()},
      {"model", options.model},
      {"world", world.size()},
      {"batch_per_rank", options.batch_size},
      {"steps", result.steps},
      {"ms_per_step", result.steps > 0 ? rounded(1e3 * result.seconds / double(result.steps), 1000) : 0.0},
      {"samples_per_s", rounded(result.samples_per_s, 10)},
      {"test_accuracy", result.test_accuracy}};
  fmt::print("{}\n", json.dump());
}

int train(const Texts& texts, const tutti::ImageTrainingOptions& options) {
  const auto train = tutti::load_fashion_mnist(texts.data, tutti::Split::kTrain).or_throw();
  const auto test = tutti::load_fashion_mnist(texts.data, tutti::Split::kTest).or_throw();
  const auto world = tutti::init();
  const auto result = tutti::train_image_model(world, train, test, options);
  if (world.rank() != 0) return 0;
  fmt::print(stderr,
             "{}: {} rank{}, {:.1f} samples/s, communication exposed {:.1f}%, test accuracy {:.4f}, test loss {:.4f}\n",
             options.model, world.size(), world.size() == 1 ? "" : "s", result.samples_per_s, result.exposed_percent,
             result.test_accuracy, result.test_loss);
  if (texts.json) print_json(world, options, result);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Texts texts;
  CLI::App app(
      "Trains a classifier of Fashion-MNIST pictures; on several ranks under tutti run, torchrun, mpirun or srun.",
      "train_image");
  declare(app, texts);
  if (const auto code = tutti::cli::parse(app, {argv + 1, argv + argc})) return *code;
  const auto options = interpret(texts);
  if (!options.ok()) {
    tutti::cli::tell("train_image", options.error());
    return kUsageError;
  }
  return tutti::cli::run_training([&] { return train(texts, *options); });
}
