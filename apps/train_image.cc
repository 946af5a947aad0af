// train_image: a classifier on Fashion-MNIST, alone or on the ranks of a world.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "tutti/base/log.h"
#include "tutti/base/text.h"
#include "tutti/models/image/train.h"
#include "tutti/runtime/init.h"
#include "tutti/tensor/compute.h"

namespace {

constexpr int kUsageError = 2;

struct CommandLine {
  std::string data = tutti::kFashionMnistFolder;
  bool json = false;
  std::string overlap = "auto";
  tutti::ImageTrainingOptions training;
};

void add_options(CLI::App& app, CommandLine& line) {
  auto& training = line.training;
  app.add_option("--data", line.data, "folder with the four Fashion-MNIST files")->capture_default_str();
  app.add_option("--model", training.model, "cnn (1.2 M parameters) or mlp (20 M)")
      ->check(CLI::IsMember({"cnn", "mlp"}))
      ->capture_default_str();
  app.add_option("--batch-size", training.batch_size, "samples per rank and step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--epochs", training.epochs, "times through the training set")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--max-steps", training.max_steps, "stop an epoch after this many steps; 0: never")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--lr", training.lr, "learning rate")->check(CLI::NonNegativeNumber)->capture_default_str();
  app.add_option("--momentum", training.momentum, "of stochastic gradient descent")
      ->check(CLI::Range(0.0, 1.0))
      ->capture_default_str();
  app.add_option("--seed", training.seed, "of the weights and of the order of samples")->capture_default_str();
  app.add_option("--log-every", training.log_every, "seconds between lines of progress; 0: every step, negative: none")
      ->capture_default_str();
  app.add_option("--save", training.save, "write the weights to this safetensors file");
  app.add_option("--overlap", line.overlap, "communicate while computing: auto, on, off")
      ->check(CLI::IsMember({"auto", "on", "off"}))
      ->capture_default_str();
  app.add_flag("--views", training.parallel.gradients_as_views, "gradients are windows into the buckets");
  app.add_flag("!--no-heap", training.parallel.heap_tensors, "do not place large tensors in shared memory");
  app.add_flag("--json", line.json, "end with one line of JSON on standard output");
}

// One sentence, with the known option that is nearest to a mistyped one.
std::string usage_text(const CLI::App& app, const CLI::ParseError& error) {
  std::string text = error.what();
  if (dynamic_cast<const CLI::ExtrasError*>(&error) == nullptr) return text;
  std::vector<std::string> known;
  for (const auto* option : app.get_options()) {
    for (const auto& name : option->get_lnames()) known.push_back("--" + name);
  }
  const std::string given = app.remaining().front();
  text = fmt::format("unknown argument {}", given);
  const auto nearest = tutti::nearest(given.substr(0, given.find('=')), known);
  return nearest ? fmt::format("{}; did you mean {}?", text, *nearest) : text;
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

int train(const CommandLine& line) {
  const auto train = tutti::load_fashion_mnist(line.data, tutti::Split::kTrain).or_throw();
  const auto test = tutti::load_fashion_mnist(line.data, tutti::Split::kTest).or_throw();
  const auto world = tutti::init();
  const auto result = tutti::train_image_model(world, train, test, line.training);
  if (world.rank() != 0) return 0;
  fmt::print(stderr,
             "{}: {} rank{}, {:.1f} samples/s, communication exposed {:.1f}%, test accuracy {:.4f}, test loss {:.4f}\n",
             line.training.model, world.size(), world.size() == 1 ? "" : "s", result.samples_per_s,
             result.exposed_percent, result.test_accuracy, result.test_loss);
  if (line.json) print_json(world, line.training, result);
  return 0;
}

int exit_code(const tutti::Error& error) {
  const bool usage = error.code == tutti::Code::kUsage || error.code == tutti::Code::kInvalidArgument ||
                     error.code == tutti::Code::kNotFound;
  return usage ? kUsageError : 1;
}

}  // namespace

int main(int argc, char** argv) {
  CommandLine line;
  CLI::App app(
      "Trains a classifier of Fashion-MNIST pictures; on several ranks under tutti run, torchrun, mpirun or srun.",
      "train_image");
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  add_options(app, line);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "train_image: {} (train_image --help lists the options)\n", usage_text(app, error));
    return kUsageError;
  }
  line.training.parallel.overlap = line.overlap == "on"    ? tutti::Overlap::kOn
                                   : line.overlap == "off" ? tutti::Overlap::kOff
                                                           : tutti::Overlap::kAuto;
  try {
    return train(line);
  } catch (const tutti::Exception& failure) {
    tutti::log::error(failure.what());
    return exit_code(failure.error());
  } catch (const std::exception& failure) {
    tutti::log::error(failure.what());
    return 1;
  }
}
