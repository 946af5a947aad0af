// train_image: a classifier on Fashion-MNIST, alone or on the ranks of a world.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/options/answering.h"
#include "apps/options/command_line.h"
#include "apps/options/help_text.h"
#include "apps/options/tell_once.h"
#include "tutti/base/log.h"
#include "tutti/models/image/option_pairs.h"
#include "tutti/parallel/data_parallel/precision/mixed_precision.h"
#include "tutti/parallel/data_parallel/stats_json.h"
#include "tutti/runtime/init.h"
#include "tutti/tensor/compute.h"

namespace {

using tutti::Result;

constexpr int kUsageError = 2;
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

// The options as text; ImageTrainingOptions holds what they mean.
struct Texts {
  std::string data = tutti::kFashionMnistFolder, model = "cnn", save, overlap = "auto", sharded = "auto";
  std::string batch_size = "64", accumulate = "1", epochs = "1", max_steps = "0", loader_threads = "0", seed = "0";
  std::string dropout = "0", optimizer = "sgd", lr, momentum, weight_decay, clip_grad_norm = "0";
  std::string logical_ranks = "0", precision = "f32", compress = "none", stage = "1", check_replicas = "0";
  std::string save_dir, save_interval = "0", keep = "0", keep_every = "0", resume = "auto";
  std::string memory_copy_interval = "0";
  std::string log_every = "1", trace, tensorboard, check_gradients = "reduction";
  bool save_dir_per_node = false, nesterov = false, deterministic = false, views = false, no_heap = false, json = false,
       profile = false;
};

void declare(CLI::App& app, Texts& texts) {
  tutti::cli::set_help(app, kFooter);
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
  add("Data", "--accumulate", texts.accumulate, "forward and backward passes per step (1)", "N");
  add("Data", "--loader-threads", texts.loader_threads,
      "threads that prepare batches ahead; 0 (default): the training thread prepares them", "N");
  add("Data", "--epochs", texts.epochs, "passes over the training set (1)", "N");
  add("Data", "--max-steps", texts.max_steps,
      "end each epoch after this many steps, including steps before a resume; 0 (default): do not", "N");
  add("Model", "--model", texts.model, "cnn (default, 1.2 M parameters) or mlp (20 M)", "NAME");
  add("Model", "--dropout", texts.dropout, "dropout probability before the later linear layers (0)", "P");
  add("Model", "--seed", texts.seed, "seed of weights, order of samples, and dropout (0)", "N");
  add("Optimizer", "--optimizer", texts.optimizer, "sgd (default), adam, adamw or adagrad", "NAME");
  add("Optimizer", "--lr", texts.lr, "learning rate (sgd 0.05, adagrad 0.01, else 0.001)", "X");
  add("Optimizer", "--momentum", texts.momentum, "momentum of sgd (0.9)", "X");
  add_flag("Optimizer", "--nesterov", texts.nesterov, "use Nesterov's momentum in sgd");
  add("Optimizer", "--weight-decay", texts.weight_decay, "weight decay (adamw 0.01, else 0)", "X");
  add("Optimizer", "--clip-grad-norm", texts.clip_grad_norm, "clip gradients to this global norm; 0 (default): off",
      "X");
  add("Parallel", "--logical-ranks", texts.logical_ranks,
      "compute like N ranks: any number of processes 1, 2, 4, ... that divides N gives the same bits; 0 (default): off",
      "N");
  add("Parallel", "--precision", texts.precision,
      "type of matrix products: f32 (default), bf16, or f16 (needs LibTorch 2.4)", "TYPE");
  add("Parallel", "--compress", texts.compress,
      "compression of gradients for communication: none (default), bf16, f16 or powersgd", "HOW");
  add("Parallel", "--check-replicas", texts.check_replicas,
      "compare the weights of all ranks every N steps; 0 (default): never", "N");
  add("Parallel", "--check-gradients", texts.check_gradients,
      "what to do about NaN or Inf in gradients: reduction (default: check while averaging, and end the job), before "
      "(check each rank first, which always names the rank), or off; with gradients in f16 always before, and the step "
      "is skipped instead",
      "WHEN");
  add_flag("Parallel", "--deterministic", texts.deterministic,
           "use one compute thread and deterministic operators only");
  add("Checkpoints", "--save-dir", texts.save_dir,
      "save checkpoints to this folder, which all nodes share; saves at the end, and when asked to stop", "DIR");
  add_flag("Checkpoints", "--save-dir-per-node", texts.save_dir_per_node,
           "--save-dir is a different folder on each node, for the files of that node's ranks");
  add("Checkpoints", "--save-interval", texts.save_interval,
      "save every N steps too, while training continues; 0 (default): do not", "N");
  add("Checkpoints", "--keep", texts.keep, "keep at most N checkpoints; 0 (default): keep all", "N");
  add("Checkpoints", "--keep-every", texts.keep_every, "never delete checkpoints whose step is a multiple of N", "N");
  add("Checkpoints", "--resume", texts.resume,
      "auto (default): resume from the newest valid checkpoint in --save-dir, if there is one; never; or PATH", "HOW");
  add("Checkpoints", "--memory-copy-interval", texts.memory_copy_interval,
      "copy the state every N steps to memory that tutti run keeps, to resume from after a restart; 0 (default): never",
      "N");
  add("Output", "--save", texts.save, "write the weights to this safetensors file", "FILE");
  add("Output", "--log-every", texts.log_every,
      "seconds between progress lines (1); 0: print every step, negative: print none", "X");
  add("Output", "--trace", texts.trace,
      "write a Chrome trace of all ranks: a file (.json), or a folder with one trace per rank", "PATH");
  add_flag("Output", "--profile", texts.profile, "end with a table of timings");
  add("Output", "--tensorboard", texts.tensorboard, "write event files for TensorBoard to this folder", "DIR");
  add_flag("Output", "--json", texts.json, "end with one line of JSON on standard output");
  add("Speed", "--overlap", texts.overlap, "overlap communication with computation: auto (default), on, off", "WHEN");
  add("Speed", "--sharded", texts.sharded,
      "shard the optimizer: each rank updates its part of large weights: auto (default: on one host), on, off", "WHEN");
  add("Speed", "--stage", texts.stage,
      "ZeRO stage: 1 (default), or 2, which also shards gradients, and turns --sharded auto into on", "N");
  add_flag("Speed", "--views", texts.views, "make gradients views of the buckets");
  add_flag("Speed", "--no-heap", texts.no_heap, "do not place large tensors in shared memory");
}

Result<tutti::UpdateRule> update_rule(const Texts& texts) {
  using tutti::cli::choose, tutti::cli::real_number;
  constexpr double kAny = std::numeric_limits<double>::max();
  const auto which = TUTTI_TRY(choose("--optimizer", texts.optimizer, {"sgd", "adam", "adamw", "adagrad"}));
  const double usual = which == 0 ? 0.05 : which == 3 ? 0.01 : 0.001;
  const double lr = texts.lr.empty() ? usual : TUTTI_TRY(real_number("--lr", texts.lr, 0, kAny));
  const double momentum = texts.momentum.empty() ? 0.9 : TUTTI_TRY(real_number("--momentum", texts.momentum, 0, 1));
  const std::string decay_text = !texts.weight_decay.empty() ? texts.weight_decay : which == 2 ? "0.01" : "0";
  const double decay = TUTTI_TRY(real_number("--weight-decay", decay_text, 0, kAny));
  if (which != 0 && texts.nesterov) return tutti::cli::usage("--nesterov is for --optimizer sgd");
  if (which != 0 && !texts.momentum.empty()) return tutti::cli::usage("--momentum is for --optimizer sgd");
  tutti::UpdateRule rule;
  if (which == 0)
    rule = tutti::SgdOptions{.lr = lr, .momentum = momentum, .weight_decay = decay, .nesterov = texts.nesterov};
  if (which == 1) rule = tutti::AdamOptions{.lr = lr, .weight_decay = decay};
  if (which == 2) rule = tutti::AdamWOptions{.lr = lr, .weight_decay = decay};
  if (which == 3) rule = tutti::AdagradOptions{.lr = lr, .weight_decay = decay};
  TUTTI_TRY(tutti::check(rule));
  return rule;
}

Result<tutti::DataParallelOptions> data_parallel(const Texts& texts) {
  using tutti::cli::choose, tutti::cli::whole_number;
  tutti::DataParallelOptions parallel;
  constexpr tutti::Overlap kOverlaps[] = {tutti::Overlap::kAuto, tutti::Overlap::kOn, tutti::Overlap::kOff};
  parallel.overlap = kOverlaps[TUTTI_TRY(choose("--overlap", texts.overlap, {"auto", "on", "off"}))];
  parallel.gradients_as_views = texts.views;
  parallel.heap_tensors = !texts.no_heap;
  parallel.logical_ranks = int(TUTTI_TRY(whole_number("--logical-ranks", texts.logical_ranks, 0, 1'000'000)));
  const auto precision = TUTTI_TRY(choose("--precision", texts.precision, {"f32", "bf16", "f16"}));
  if (precision == 1) parallel.autocast = tutti::DType::kBF16;
  if (precision == 2) parallel.autocast = tutti::DType::kF16;
  if (const auto can = tutti::check_computes_in(parallel.autocast.value_or(tutti::DType::kF32)); !can.ok())
    return tutti::cli::usage("--precision " + texts.precision + ": " + can.error().detail,
                             "take --precision bf16, or let only the gradients travel in f16 (--compress f16)");
  return parallel;
}

Result<tutti::JobCheckpointOptions> checkpoints(const Texts& texts) {
  using tutti::cli::whole_number;
  constexpr std::int64_t kMost = 1'000'000'000;
  tutti::JobCheckpointOptions options{
      .folder = texts.save_dir, .folder_per_node = texts.save_dir_per_node, .resume = texts.resume};
  options.interval = TUTTI_TRY(whole_number("--save-interval", texts.save_interval, 0, kMost));
  options.keep = int(TUTTI_TRY(whole_number("--keep", texts.keep, 0, kMost)));
  options.keep_every = TUTTI_TRY(whole_number("--keep-every", texts.keep_every, 0, kMost));
  options.memory_copy_interval =
      TUTTI_TRY(whole_number("--memory-copy-interval", texts.memory_copy_interval, 0, kMost));
  TUTTI_TRY(tutti::check(options));
  return options;
}

// --save "$FILE", and FILE is not set: not what leaving out --save means.
tutti::Status refuse_empty_values(const CLI::App& app) {
  for (const CLI::Option* const option : app.get_options())
    for (const std::string& value : option->results())
      if (value.empty() && option->get_items_expected_max() > 0)
        return tutti::cli::usage(option->get_name() + ": an empty value (is a variable that it comes from not set?)",
                                 "give it a value, or leave the option out");
  return {};
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
  training.accumulate = int(TUTTI_TRY(whole_number("--accumulate", texts.accumulate, 1, 1'000'000)));
  training.loader_threads = int(TUTTI_TRY(whole_number("--loader-threads", texts.loader_threads, 0, 1024)));
  training.dropout = TUTTI_TRY(real_number("--dropout", texts.dropout, 0, 1));
  training.rule = TUTTI_TRY(update_rule(texts));
  training.clip_grad_norm = TUTTI_TRY(real_number("--clip-grad-norm", texts.clip_grad_norm, 0, kAny));
  training.parallel = TUTTI_TRY(data_parallel(texts));
  using tutti::Compression;
  constexpr Compression kCompressions[] = {Compression::kNone, Compression::kBF16, Compression::kF16,
                                           Compression::kPowerSgd};
  training.compression =
      kCompressions[TUTTI_TRY(choose("--compress", texts.compress, {"none", "bf16", "f16", "powersgd"}))];
  training.check_replicas = TUTTI_TRY(whole_number("--check-replicas", texts.check_replicas, 0, 1'000'000'000));
  constexpr tutti::FiniteCheck kChecks[] = {tutti::FiniteCheck::kInReduction, tutti::FiniteCheck::kReport,
                                            tutti::FiniteCheck::kOff};
  training.parallel.finite_check =
      kChecks[TUTTI_TRY(choose("--check-gradients", texts.check_gradients, {"reduction", "before", "off"}))];
  training.deterministic = texts.deterministic;
  training.record = {.trace = texts.trace, .profile = texts.profile, .tensorboard = texts.tensorboard};
  training.seed =
      std::uint64_t(TUTTI_TRY(whole_number("--seed", texts.seed, 0, std::numeric_limits<std::int64_t>::max())));
  training.log_every = TUTTI_TRY(real_number("--log-every", texts.log_every, -kAny, kAny));
  training.save = texts.save;
  training.checkpoints = TUTTI_TRY(checkpoints(texts));
  constexpr tutti::Sharding kShardings[] = {tutti::Sharding::kAuto, tutti::Sharding::kOn, tutti::Sharding::kOff};
  training.sharding = kShardings[TUTTI_TRY(choose("--sharded", texts.sharded, {"auto", "on", "off"}))];
  training.sharded_stage = int(TUTTI_TRY(whole_number("--stage", texts.stage, 1, 2)));
  TUTTI_TRY(tutti::check_pairs(training));
  return training;
}

// What is not known, such as the test accuracy of a run that was stopped, is null.
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
      {"median_ms_per_step", rounded(1e3 * result.median_seconds, 1000)},
      {"samples_per_s", rounded(result.samples_per_s, 10)},
      {"test_accuracy", result.test_accuracy},
      {"test_loss", result.test_loss},
      {"last_loss", result.last_loss},
      {"data_parallel", nlohmann::ordered_json::parse(tutti::to_json(result.parallel))}};
  if (result.stopped) json["stopped"] = true;
  if (tutti::scales_loss(options)) json["left_out"] = result.left_out;
  if (options.checkpoints.memory_copy_interval > 0)
    json["memory_copies"] = nlohmann::ordered_json::parse(tutti::to_json(result.copying));
  if (!options.checkpoints.folder.empty())
    json["checkpoints"] = nlohmann::ordered_json::parse(tutti::to_json(result.saving));
  fmt::print("{}\n", json.dump());
}

void print_summary(const tutti::Group& world, const tutti::ImageTrainingOptions& options,
                   const tutti::ImageTrainingResult& result) {
  fmt::print(stderr,
             "{}: {} rank{}, {:.1f} samples/s, communication exposed {:.1f}%{}, test accuracy {:.4f}, test loss "
             "{:.4f}\n",
             options.model, world.size(), world.size() == 1 ? "" : "s", result.samples_per_s, result.exposed_percent,
             world.size() == 1 ? "" : " on rank 0", result.test_accuracy, result.test_loss);
  if (result.left_out > 0)
    fmt::print(stderr, "{}: {} step{} left out, since gradients overflowed in f16\n", options.model, result.left_out,
               result.left_out == 1 ? " was" : "s were");
}

int train(const Texts& texts, const tutti::ImageTrainingOptions& options) {
  const auto train = tutti::load_fashion_mnist(texts.data, tutti::Split::kTrain).or_throw();
  const auto test = tutti::load_fashion_mnist(texts.data, tutti::Split::kTest).or_throw();
  const auto world = tutti::init();
  const auto result = tutti::train_image_model(world, train, test, options);
  if (world.rank() == 0 && !result.stopped) print_summary(world, options, result);
  if (world.rank() == 0 && texts.json) print_json(world, options, result);
  return result.stopped ? tutti::kLeftEarly : 0;
}

int act(const std::vector<std::string>& arguments) {
  Texts texts;
  CLI::App app(
      "Trains a classifier of Fashion-MNIST pictures; on several ranks under tutti run, torchrun, mpirun or srun.",
      "train_image");
  declare(app, texts);
  std::string local_rank;
  tutti::cli::add_local_rank(app, local_rank);
  if (const auto code = tutti::cli::parse(app, arguments, tutti::cli::tell_once)) return *code;
  const auto given = refuse_empty_values(app);
  const auto options = given.ok() ? interpret(texts) : given.error();
  if (!options.ok()) {
    tutti::cli::tell_once("train_image", options.error());
    return kUsageError;
  }
  return tutti::cli::run_training(arguments, local_rank, [&] { return train(texts, *options); });
}

}  // namespace

int main(int argc, char** argv) {
  return tutti::cli::answering("train_image", [&] { return act({argv + 1, argv + argc}); });
}
