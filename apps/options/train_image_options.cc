#include "apps/options/train_image_options.h"

#include "apps/options/checkpoint_options.h"
#include "tutti/parallel/data_parallel/precision/mixed_precision.h"

namespace tutti::cli {
namespace {

constexpr std::int64_t kMost = 1'000'000'000;
constexpr const char* kLogicalOrder =
    "drop one of the two: --logical-ranks adds gradients in the order of the logical ranks";
constexpr const char* kNeedsCheck =
    "drop --check-gradients: gradients overflow in f16, and a step that overflows is skipped";

const Condition kShardedInStage1 = {"--sharded on (stage 1)", [](const OptionTexts& texts) {
                                      return texts.is("--sharded", "on") && texts.is("--stage", "1");
                                    }};

// A learning rate and a weight decay that are not given depend on the optimizer.
Status set_update_rule(UpdateRule& target, const OptionTexts& texts) {
  const std::string& name = texts.value("--optimizer");
  const auto given = [&](const char* option, double otherwise, double most = kAnyReal) -> Result<double> {
    if (!texts.has(option)) return otherwise;
    return real_number(option, texts.value(option), 0, most);
  };
  const double lr = TUTTI_TRY(given("--lr", name == "sgd" ? 0.05 : name == "adagrad" ? 0.01 : 0.001));
  const double momentum = TUTTI_TRY(given("--momentum", 0.9, 1));
  const double decay = TUTTI_TRY(given("--weight-decay", name == "adamw" ? 0.01 : 0));
  const bool nesterov = texts.is_given("--nesterov");
  if (name == "sgd") target = SgdOptions{.lr = lr, .momentum = momentum, .weight_decay = decay, .nesterov = nesterov};
  if (name == "adam") target = AdamOptions{.lr = lr, .weight_decay = decay};
  if (name == "adamw") target = AdamWOptions{.lr = lr, .weight_decay = decay};
  if (name == "adagrad") target = AdagradOptions{.lr = lr, .weight_decay = decay};
  return tutti::check(target);
}

Setter precision(std::optional<DType>& target) {
  return value([&target](const std::string& name, const std::string& text) -> Status {
    constexpr DType kTypes[] = {DType::kF32, DType::kBF16, DType::kF16};
    const DType type = kTypes[TUTTI_TRY(choose(name, text, {"f32", "bf16", "f16"}))];
    target.reset();
    if (type != DType::kF32) target = type;
    if (const auto can = check_computes_in(type); !can.ok())
      return usage(name + " " + text + ": " + can.error().detail,
                   "take --precision bf16, or compress only the gradients to f16 (--compress f16)");
    return {};
  });
}

OptionGroup data_options(TrainImageCommand& command) {
  auto& t = command.training;
  return {
      "Data",
      {{"--data", "DIR", kFashionMnistFolder, "folder with the four Fashion-MNIST files", text(command.data)},
       {"--batch-size", "N", "64", "samples per rank and step", whole(t.batch_size, 1, kMost)},
       {"--accumulate", "N", "1", "forward and backward passes per step", whole(t.accumulate, 1, 1'000'000),
        excludes("--logical-ranks",
                 "drop --accumulate and raise --logical-ranks: each logical rank is one forward and backward pass")},
       {"--loader-threads", "N", "0", "threads that prepare batches ahead; 0: the training thread prepares them",
        whole(t.loader_threads, 0, 1024)},
       {"--epochs", "N", "1", "passes over the training set", whole(t.epochs, 1, kMost)},
       {"--max-steps", "N", "0", "end each epoch after this many steps, including steps before a resume; 0: do not",
        whole(t.max_steps, 0, kMost)}}};
}

OptionGroup model_options(ImageTrainingOptions& t) {
  return {"Model",
          {{"--model", "NAME", "cnn", "cnn (1.2 M parameters) or mlp (20 M)", choice(t.model, {"cnn", "mlp"})},
           device_option(t.device, {}),
           {"--dropout", "P", "0", "dropout probability before the later linear layers", real(t.dropout, 0, 1)},
           {"--seed", "N", "0", "seed of weights, order of samples, and dropout",
            whole(t.seed, 0, std::numeric_limits<std::int64_t>::max())}}};
}

OptionGroup optimizer_options(ImageTrainingOptions& t) {
  return {"Optimizer",
          {{"--optimizer", "NAME", "sgd", "sgd, adam, adamw or adagrad",
            value([](const std::string& name, const std::string& text) {
              return choose(name, text, {"sgd", "adam", "adamw", "adagrad"}).status();
            })},
           {"--lr", "X", "", "learning rate (sgd 0.05, adagrad 0.01, else 0.001)", text_only()},
           {"--momentum", "X", "", "momentum of sgd (0.9)", text_only(), needs("--optimizer sgd")},
           {"--nesterov", "", "", "use Nesterov's momentum in sgd", flag_only(), needs("--optimizer sgd")},
           {"--weight-decay", "X", "", "weight decay (adamw 0.01, else 0)", text_only()},
           {"--clip-grad-norm", "X", "0", "clip gradients to this global norm; 0: off", real(t.clip_grad_norm, 0)}}};
}

OptionGroup parallel_options(ImageTrainingOptions& t) {
  return {
      "Parallel",
      {{"--logical-ranks", "N", "0",
        "compute like N ranks: any number of processes 1, 2, 4, ... that divides N gives the same bits; 0: off",
        whole(t.parallel.logical_ranks, 0, 1'000'000)},
       {"--precision", "TYPE", "f32", "type of matrix products: f32, bf16, or f16 (needs LibTorch 2.4)",
        precision(t.parallel.autocast)},
       {"--compress", "HOW", "none", "compression of gradients for communication: none, bf16, f16 or powersgd",
        choice(t.compression, {"none", "bf16", "f16", "powersgd"}),
        excludes("--logical-ranks", kLogicalOrder) +
            excludes("--views", "drop --views: averages of compressed gradients may be in memory outside the bucket") +
            excludes("--sharded on", "drop one of the two: a sharded optimizer averages the gradients")},
       {"--check-replicas", "N", "0", "compare the weights of all ranks every N steps; 0: never",
        whole(t.check_replicas, 0, kMost)},
       {"--check-gradients", "WHEN", "reduction",
        "what to do about NaN or Inf in gradients: reduction (check while averaging, and end the job), before (check "
        "each rank first, which always names the rank), or off; with gradients in f16 always before, and the step is "
        "skipped instead",
        choice_of<FiniteCheck>(
            t.parallel.finite_check,
            {{"reduction", FiniteCheck::kInReduction}, {"before", FiniteCheck::kReport}, {"off", FiniteCheck::kOff}}),
        excludes("--check-gradients off", "--compress f16", kNeedsCheck) +
            excludes("--check-gradients off", "--precision f16", kNeedsCheck)},
       {"--deterministic", "", "", "use one compute thread and deterministic operators only", flag(t.deterministic)}}};
}

OptionGroup output_options(TrainImageCommand& command) {
  auto& t = command.training;
  return {
      "Output",
      {{"--save", "FILE", "", "write the weights to this safetensors file", text(t.save)},
       {"--log-every", "X", "1", "seconds between progress lines; 0: print every step, negative: print none",
        real(t.log_every)},
       {"--trace", "PATH", "", "write a Chrome trace of all ranks: a file (.json), or a folder with one trace per rank",
        text(t.record.trace)},
       {"--profile", "", "", "end with a table of timings", flag(t.record.profile)},
       {"--tensorboard", "DIR", "", "write event files for TensorBoard to this folder", text(t.record.tensorboard)},
       {"--json", "", "", "end with one line of JSON on standard output", flag(command.json)}}};
}

OptionGroup speed_options(ImageTrainingOptions& t) {
  return {
      "Speed",
      {{"--overlap", "WHEN", "auto", "overlap communication with computation: auto, on, off",
        choice_of<Overlap>(t.parallel.overlap,
                           {{"auto", Overlap::kAuto}, {"on", Overlap::kOn}, {"off", Overlap::kOff}})},
       {"--sharded", "WHEN", "auto",
        "shard the optimizer: each rank updates its part of large weights: auto (on the CPUs of one host), on, off",
        choice_of<Sharding>(t.sharding, {{"auto", Sharding::kAuto}, {"on", Sharding::kOn}, {"off", Sharding::kOff}}),
        excludes(kShardedInStage1, "--overlap on",
                 "drop --overlap on, or give --stage 2: stage 1 averages gradients after the backward pass")},
       {"--stage", "N", "1", "ZeRO stage: 1, or 2, which also shards gradients, and turns --sharded auto into on",
        whole(t.sharded_stage, 1, 2),
        excludes("--stage 2", "--sharded off", "drop one of the two: stage 2 is a sharded optimizer") +
            excludes("--stage 2", "--compress",
                     "drop one of the two: gradients that a sharded optimizer averages are not compressed") +
            excludes("--stage 2", "--overlap off",
                     "drop one of the two: stage 2 averages gradients during the backward pass")},
       {"--views", "", "", "make gradients views of the buckets", flag(t.parallel.gradient_as_bucket_view),
        excludes("--logical-ranks", kLogicalOrder)},
       {"--no-heap", "", "", "do not place large tensors in shared memory", flag_off(t.heap_tensors)}}};
}

}  // namespace

OptionTable train_image_options(TrainImageCommand& command) {
  auto& t = command.training;
  return {.groups = {data_options(command), model_options(t), optimizer_options(t), parallel_options(t),
                     checkpoint_options(t.checkpoints), output_options(command), speed_options(t)},
          .checks = {[&t](const OptionTexts& texts) { return set_update_rule(t.rule, texts); }}};
}

}  // namespace tutti::cli
