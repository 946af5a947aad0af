#include "apps/options/pretrain_gpt_options.h"

#include "apps/options/checkpoint_options.h"
#include "apps/options/transformer_options.h"

namespace tutti::cli {
namespace {

constexpr std::int64_t kMostInt = kMostSize;

constexpr const char* kOnePrecision = "drop one of the two: a model is computed in one precision";
constexpr const char* kFixedScale = "drop one of the two: --loss-scale fixes the scale, which the other option adapts";
constexpr const char* kOneSchedule = "drop one of the two: --step-batch-size-schedule has all batch sizes";
constexpr const char* kGrowingBatches = "give --train-samples N: steps whose batches grow are not a number of samples";
constexpr const char* kInSteps = "give the length in steps: --train-iters counts steps, the other samples";
constexpr const char* kInSamples = "give the length in samples: --train-samples counts samples, the other steps";
constexpr const char* kOneWarmUp = "drop one of the two: both set the length of the warm-up";
constexpr const char* kOneSource = "drop one of the two: training has one source of data";
constexpr const char* kOneTokenizer = "drop one of the two: each is a tokenizer";

// ---- When an option has an effect

using Texts = const OptionTexts&;
bool draws(Texts texts) { return texts.has("--generate") && texts.number("--temperature") > 0; }
bool has_least_rate(Texts texts) { return !texts.is("--lr-decay-style", "constant"); }
bool has_decay(Texts texts) { return has_least_rate(texts) || texts.has("--lr-warmup-fraction"); }
bool warms_up(Texts texts) {
  return texts.number("--lr-warmup-iters") > 0 || texts.number("--lr-warmup-samples") > 0 ||
         texts.number("--lr-warmup-fraction") > 0;
}
bool has_plain_decay(Texts texts) { return texts.is("--weight-decay-incr-style", "constant"); }
bool evaluates(Texts texts) { return texts.number("--eval-iters") > 0; }
bool has_timers(Texts texts) { return texts.number("--timing-log-level") > 0; }
bool reads_files(Texts texts) { return !texts.is_given("--mock-data"); }
bool has_tensor_ranks(Texts texts) { return texts.number("--tensor-model-parallel-size") > 1; }
bool sends_alike(Texts texts) {
  return has_tensor_ranks(texts) && texts.number("--pipeline-model-parallel-size") > 1 &&
         !texts.is_given("--sequence-parallel");
}
bool cuts_by_pattern(Texts texts) {
  return texts.is("--tokenizer-type", "TikTokenizer") || texts.has("--tokenizer-model");
}
bool recomputes_layers(Texts texts) { return !texts.is("--recompute-granularity", "selective"); }

constexpr const char* kConstant = "with --lr-decay-style constant";
constexpr const char* kNoTimers = "without --timing-log-level 1 or 2";
bool resumes_path(Texts texts) { return texts.is_active("--resume") && !texts.is("--resume", "never"); }
const Condition kNcclOnCpus = {"--distributed-backend nccl", [](Texts texts) {
                                 return texts.is("--distributed-backend", "nccl") && texts.is("--device", "cpu");
                               }};
const Condition kMeasuresCpus = {"--parallel auto (measured)",
                                 [](Texts texts) { return texts.is("--parallel", "auto") && !texts.has("--cluster"); }};
const Condition kLoads = {"--load", [](Texts texts) { return texts.has("--load") || resumes_path(texts); }};

// ---- Setters

// For a check, which reads the text.
Setter one_of(std::vector<std::string> known) {
  return value([known = std::move(known)](const std::string& name, const std::string& text) {
    return choose(name, text, known).status();
  });
}

Setter blend(TokenBlend& target) {
  return words([&target](const std::string&, const std::vector<std::string>& words) -> Status {
    target = TUTTI_TRY(parse_blend(words));
    return {};
  });
}

Setter ramp_up(BatchScheduleOptions& target) {
  return words([&target](const std::string& name, const std::vector<std::string>& words) -> Status {
    if (words.size() != 3)
      return usage(name + " needs 3 numbers, not " + std::to_string(words.size()), name + " START INCREMENT SAMPLES");
    std::int64_t numbers[3];
    for (std::size_t i = 0; i < 3; ++i) numbers[i] = TUTTI_TRY(whole_number(name, words[i], 0, kMostWhole));
    target.ramp_up = {numbers[0], numbers[1], numbers[2]};
    return {};
  });
}

Setter minutes(double& seconds) {
  return value([&seconds](const std::string& name, const std::string& text) -> Status {
    seconds = 60 * TUTTI_TRY(real_number(name, text, 0, kAnyReal));
    return {};
  });
}

Setter timeout(Duration& target) {
  return value([&target](const std::string& name, const std::string& text) -> Status {
    const double minutes = TUTTI_TRY(real_number(name, text, 0, 1e6));
    if (minutes <= 0) return usage(name + " needs a number above 0");
    target = from_seconds(60 * minutes);
    return {};
  });
}

// ---- The table

OptionGroup model(PretrainGptCommand& command) {
  auto& o = command.options;
  auto& s = o.model;
  OptionGroup group{"Model", transformer_options(s)};
  const std::vector<Option> more = {
      {"--init-method-std", "X", "0.02", "standard deviation of the initial weights", real(s.initial_deviation, 0)},
      {"--seed", "N", "1234", "seed of weights, dropout and data",
       whole(s.seed, 0, std::numeric_limits<std::uint32_t>::max())},
      {"--bf16", "", "", "compute matrix products in bf16; weights and sums stay f32", flag_only(),
       excludes("--fp16", kOnePrecision) + excludes("--fp64", kOnePrecision)},
      {"--fp16", "", "", "compute matrix products in f16, with a loss scale (needs LibTorch 2.4)", flag_only(),
       excludes("--fp64", kOnePrecision)},
      {"--loss-scale", "X", "", "fixed loss scale (default: adaptive with --fp16, else none)", text_only()},
      {"--initial-loss-scale", "X", "", "initial value of the adaptive loss scale (4294967296)", text_only(),
       needs("--fp16", "", "drop it") + excludes("--loss-scale", kFixedScale)},
      {"--min-loss-scale", "X", "", "least loss scale; an infinity at it ends the run (1)", text_only(),
       needs("--fp16", "", "drop it") + excludes("--loss-scale", kFixedScale)},
      {"--loss-scale-window", "N", "", "steps without an infinity before the loss scale doubles (1000)", text_only(),
       needs("--fp16", "", "drop it") + excludes("--loss-scale", kFixedScale)},
      {"--hysteresis", "N", "", "number of infinities at which the loss scale begins to be halved (2)", text_only(),
       needs("--fp16", "", "drop it") + excludes("--loss-scale", kFixedScale)},
      {"--fp64", "", "", "compute in f64, to compare grids of ranks", flag_only()},
      device_option(o.device,
                    excludes(kMeasuresCpus, "add --cluster NAME: without it --parallel auto measures the CPUs")),
      {"--deterministic-mode", "", "", "use one compute thread and deterministic operators only",
       flag(o.deterministic)}};
  group.options.insert(group.options.end(), more.begin(), more.end());
  return group;
}

OptionGroup data(PretrainGptCommand& command) {
  auto& o = command.options;
  return {
      "Data",
      {{"--data-path", "WORDS", "", "tokens: the PREFIX of .bin and .idx files, or WEIGHT PREFIX WEIGHT PREFIX ...",
        blend(o.data.divided),
        excludes("--mock-data", kOneSource) + excludes("--train-data-path", kOneSource) +
            excludes("--valid-data-path", kOneSource) + excludes("--test-data-path", kOneSource)},
       {"--split", "A,B,C", "", "shares of --data-path for training, validation and test (969, 30, 1)", text_only(),
        no_effect("with --mock-data", {"", reads_files})},
       {"--train-data-path", "WORDS", "", "training data, instead of --data-path", blend(o.data.apart[0]),
        excludes("--mock-data", kOneSource)},
       {"--valid-data-path", "WORDS", "", "validation data", blend(o.data.apart[1]),
        excludes("--mock-data", kOneSource)},
       {"--test-data-path", "WORDS", "", "test data", blend(o.data.apart[2]), excludes("--mock-data", kOneSource)},
       {"--mock-data", "", "", "mock data: each sample counts up", flag(o.data.mock)},
       {"--seq-length", "N", "", "sequence length in tokens", whole(o.model.sequence_length, 1, kMostInt)},
       {"--dataloader-type", "KIND", "single",
        "single: shuffle the samples once; cyclic: shuffle them again in each epoch", one_of({"single", "cyclic"})},
       {"--no-data-sharding", "", "", "cyclic: shuffle all data, not the shard of each replica", flag_only(),
        needs("--dataloader-type cyclic")},
       {"--eod-mask-loss", "", "", "do not learn what follows the end of a document", flag_only()},
       {"--reset-position-ids", "", "", "restart positions at each document of a sample", flag(o.reset_positions)},
       {"--reset-attention-mask", "", "", "documents of a sample do not see each other", flag(o.reset_attention)},
       {"--tokenizer-type", "NAME", "",
        "NullTokenizer (needs only --vocab-size), byte, GPT2BPETokenizer or TikTokenizer (default: chosen by the given "
        "files)",
        one_of({"NullTokenizer", "byte", "GPT2BPETokenizer", "TikTokenizer"})},
       {"--vocab-size", "N", "", "NullTokenizer: number of tokens; the end of a document is one more", text_only()},
       {"--vocab-file", "FILE", "", "GPT2BPETokenizer: vocab.json", text_only(),
        excludes("--tokenizer-model", kOneTokenizer)},
       {"--merge-file", "FILE", "", "GPT2BPETokenizer: merges.txt", text_only(),
        excludes("--tokenizer-model", kOneTokenizer)},
       {"--tokenizer-model", "FILE", "", "TikTokenizer: a .tiktoken file, or the .json file of Megatron-LM",
        text_only()},
       {"--tiktoken-pattern", "NAME", "",
        "TikTokenizer: how text is cut, v1, v2, gpt2 or cl100k (v2 for the .json file, else gpt2)", text_only(),
        no_effect("without --tokenizer-type TikTokenizer", {"", cuts_by_pattern})}}};
}

OptionGroup batches(PretrainGptCommand& command) {
  auto& o = command.options;
  auto& b = o.batches;
  return {"Batches",
          {{"--micro-batch-size", "N", "", "samples of a microbatch on one replica", whole(b.micro_batch, 1, kMostInt)},
           {"--global-batch-size", "N", "", "samples of a step over all replicas (micro batch x data parallel size)",
            whole(b.global_batch, 1), excludes("--step-batch-size-schedule", kOneSchedule)},
           {"--rampup-batch-size", "N N N", "",
            "first global batch size, its increment, and the samples over which it grows", ramp_up(b),
            excludes("--step-batch-size-schedule", kOneSchedule)},
           {"--step-batch-size-schedule", "TEXT", "",
            "global batch size from a number of tokens on, such as \"0:768 250B:1536\"", text_only()},
           {"--decrease-batch-size-if-needed", "", "", "round down a global batch that does not divide evenly",
            flag(b.decrease_if_needed)},
           {"--train-iters", "N", "", "number of steps (or give --train-samples)", whole(o.train_steps, 1),
            excludes("--train-samples", "drop one of the two: both set the length of the training") +
                excludes("--rampup-batch-size", kGrowingBatches) +
                excludes("--step-batch-size-schedule", kGrowingBatches) + excludes("--lr-decay-samples", kInSteps) +
                excludes("--lr-warmup-samples", kInSteps) + excludes("--lr-wsd-decay-samples", kInSteps)},
           {"--train-samples", "N", "", "number of samples (or give --train-iters)", whole(o.train_samples, 1),
            excludes("--lr-decay-iters", kInSamples) + excludes("--lr-warmup-iters", kInSamples) +
                excludes("--lr-wsd-decay-iters", kInSamples)}}};
}

OptionGroup optimizer(PretrainGptCommand& command) {
  auto& o = command.options;
  auto& t = o.optimizer;
  auto& rate = t.learning_rate;
  return {
      "Optimizer",
      {{"--optimizer", "NAME", "adam", "adam (AdamW) or sgd",
        choice_of<bool>(t.adam, {{"adam", true}, {"sgd", false}})},
       {"--lr", "X", "", "learning rate after the warm-up", real(rate.most, 0)},
       {"--min-lr", "X", "0", "learning rate at the end", real(rate.least, 0),
        no_effect(kConstant, {"", has_least_rate})},
       {"--lr-decay-style", "KIND", "linear", "constant, linear, cosine, inverse-square-root or WSD",
        choice(rate.style, {"constant", "linear", "cosine", "inverse-square-root", "WSD"})},
       {"--lr-decay-iters", "N", "", "steps until the learning rate is --min-lr (default: all)", whole(t.decay.steps),
        no_effect(kConstant, {"", has_decay})},
       {"--lr-decay-samples", "N", "", "with --train-samples: samples until the learning rate is --min-lr",
        whole(t.decay.samples), no_effect(kConstant, {"", has_decay})},
       {"--lr-warmup-iters", "N", "0", "steps of a linear warm-up", whole(t.warm_up.steps)},
       {"--lr-warmup-samples", "N", "0", "with --train-samples: samples of the warm-up", whole(t.warm_up.samples)},
       {"--lr-warmup-fraction", "X", "", "length of the warm-up as a share of the decay",
        real(t.warm_up_fraction, 0, 1),
        excludes("--lr-warmup-iters", kOneWarmUp) + excludes("--lr-warmup-samples", kOneWarmUp)},
       {"--lr-warmup-init", "X", "0", "learning rate at the start of the warm-up", real(rate.at_start, 0),
        no_effect("without a warm-up", {"", warms_up})},
       {"--lr-wsd-decay-style", "KIND", "exponential",
        "WSD: how the rate falls: linear, cosine, exponential or minus_sqrt",
        choice(rate.anneal, {"linear", "cosine", "exponential", "minus_sqrt"}), only_with("--lr-decay-style WSD")},
       {"--lr-wsd-decay-iters", "N", "", "WSD: number of last steps in which the rate falls", whole(t.anneal.steps),
        only_with("--lr-decay-style WSD")},
       {"--lr-wsd-decay-samples", "N", "", "with --train-samples: number of last samples in which the rate falls",
        whole(t.anneal.samples), only_with("--lr-decay-style WSD")},
       {"--weight-decay", "X", "0.01", "weight decay of matrices; biases and norms have none",
        real(t.weight_decay.start, 0),
        no_effect(
            "with --weight-decay-incr-style linear or cosine: it goes from --start-weight-decay to --end-weight-decay",
            {"", has_plain_decay})},
       {"--start-weight-decay", "X", "", "weight decay of the first step, with --weight-decay-incr-style", text_only()},
       {"--end-weight-decay", "X", "", "weight decay of the last step, with --weight-decay-incr-style", text_only()},
       {"--weight-decay-incr-style", "KIND", "constant", "change of the weight decay: constant, linear or cosine",
        choice(t.weight_decay.style, {"constant", "linear", "cosine"})},
       {"--clip-grad", "X", "1", "clip gradients to this global norm; 0: off", real(t.clip_grad, 0)},
       {"--adam-beta1", "X", "0.9", "Adam's beta1: decay of the mean of gradients", real(t.beta1, 0, 1),
        only_with("--optimizer adam")},
       {"--adam-beta2", "X", "0.999", "Adam's beta2: decay of the mean of squared gradients", real(t.beta2, 0, 1),
        only_with("--optimizer adam")},
       {"--adam-eps", "X", "1e-8", "Adam's epsilon", real(t.epsilon, 0), only_with("--optimizer adam")},
       {"--sgd-momentum", "X", "0.9", "SGD's momentum", real(t.momentum, 0, 1), only_with("--optimizer sgd")},
       {"--use-distributed-optimizer", "", "", "shard the optimizer state over the replicas (ZeRO-1)",
        flag(o.parallel.shard_optimizer)},
       {"--overlap-grad-reduce", "", "", "average gradients while backward runs", flag(o.parallel.overlap_gradients)},
       {"--fsdp",
        "",
        "",
        "shard weights, gradients and optimizer state over the replicas (ZeRO-3, FSDP2)",
        flag(o.parallel.fully_shard),
        {},
        {"--use-torch-fsdp2"}}}};
}

OptionGroup ranks(PretrainGptCommand& command) {
  auto& p = command.options.parallel;
  return {
      "Ranks",
      {{"--parallel", "KIND", "given",
        "given: by the options below; auto: choose the options of this group that are not given, the microbatch and "
        "what is sharded",
        choice_of<bool>(command.chooses_parallel, {{"given", false}, {"auto", true}})},
       {"--cluster", "NAME", "",
        "with --parallel auto: choose for this preset or file of tutti plan measure (default: measured at the "
        "start, in a second)",
        text(command.cluster), needs("--parallel auto", "", "drop it")},
       {"--tensor-model-parallel-size", "N", "1", "ranks that each layer is sharded over",
        whole(p.grid.tensor, 1, kMostInt)},
       {"--sequence-parallel", "", "", "shard norms and dropout over these ranks too, by tokens", flag_only(),
        no_effect("without --tensor-model-parallel-size 2 or more", {"", has_tensor_ranks})},
       {"--pipeline-model-parallel-size", "N", "1", "pipeline stages: ranks that the layers are divided among",
        whole(p.grid.pipeline, 1, kMostInt)},
       {"--num-virtual-stages-per-pipeline-rank", "N", "", "virtual stages per pipeline rank (interleaved)",
        whole(p.chunks, 1, kMostInt),
        excludes("--num-layers-per-virtual-pipeline-stage",
                 "drop one of the two: both set the number of stages of a rank")},
       {"--num-layers-per-virtual-pipeline-stage", "N", "",
        "layers of a virtual stage, instead of --num-virtual-stages-per-pipeline-rank", text_only()},
       {"--microbatch-group-size-per-virtual-pipeline-stage", "N", "",
        "interleaved: microbatches in a row of one virtual stage", whole(p.microbatch_group, 1, kMostInt)},
       {"--pipeline-schedule", "NAME", "",
        "fill-drain, 1f1b, interleaved, zb-h1 or zb-v (default: 1f1b; interleaved with several stages per rank)",
        text_only()},
       {"--decoder-first-pipeline-num-layers", "N", "", "layers of the first stage",
        whole(p.end_layers.first, 0, kMostInt)},
       {"--decoder-last-pipeline-num-layers", "N", "", "layers of the last stage",
        whole(p.end_layers.last, 0, kMostInt)},
       {"--no-scatter-gather-tensors-in-pipeline", "", "",
        "between hosts, each tensor rank sends the whole activation, not its part", flag_off(p.split_messages),
        no_effect("without --tensor-model-parallel-size and --pipeline-model-parallel-size of 2 or more, or with "
                  "--sequence-parallel",
                  {"", sends_alike})},
       {"--context-parallel-size", "N", "1", "ranks that each sequence is sharded over (ring attention)",
        whole(p.grid.context, 1, kMostInt)},
       {"--use-tp-pp-dp-mapping", "", "", "number the ranks in the order tensor, pipeline, data", flag_only()},
       {"--distributed-backend", "NAME", "", "communication backend: tutti (default), gloo, mpi, or nccl for GPUs",
        choice(command.backend, {"tutti", "gloo", "mpi", "nccl"}),
        rejects(kNcclOnCpus, "NCCL is for GPUs", "add --device cuda, or give tutti, gloo or mpi")},
       {"--distributed-timeout-minutes", "X", "10", "longest wait for another rank",
        timeout(command.collective_timeout)},
       {"--recompute-granularity", "KIND", "",
        "full: keep only the inputs of layers, and recompute the layers in backward", one_of({"full", "selective"}),
        no_effect("with selective: attention scores are always recomputed in backward", {"", recomputes_layers})},
       {"--recompute-method", "KIND", "",
        "uniform (recompute runs of layers) or block (recompute the first layers of a stage)",
        one_of({"uniform", "block"})},
       {"--recompute-num-layers", "N", "", "layers of a run or of the block (1)",
        whole(p.recompute.layers, 1, kMostInt)}}};
}

OptionGroup evaluation(PretrainGptCommand& command) {
  auto& o = command.options;
  return {"Evaluation",
          {{"--eval-iters", "N", "100", "batches per evaluation; 0: no evaluation", whole(o.evaluation.iterations)},
           {"--eval-interval", "N", "", "evaluate every N steps (default: only at the end)",
            whole(o.evaluation.interval, 1), no_effect("with --eval-iters 0", {"", evaluates})},
           {"--skip-train", "", "", "evaluate without training", flag(o.skip_train)}}};
}

OptionGroup checkpoints(PretrainGptCommand& command) {
  auto& o = command.options;
  OptionGroup group = checkpoint_options(o.checkpoints);
  also_called(group, "--save-dir", "--save");
  const std::vector<Option> more = {
      {"--async-save", "", "", "continue training while a copy is written", flag(o.checkpoints.in_background),
       needs("--save-dir", "", "say where to save: --save-dir DIR")},
      {"--load", "DIR", "", "resume from the newest checkpoint in this folder; start at step 0 if it has none",
       text(o.load), excludes({"--resume (a path)", resumes_path}, "drop one of the two: both say where to start")},
      {"--ckpt-step", "N", "", "with --load: resume from the checkpoint of this step", text_only(), needs(kLoads)},
      {"--exit-on-missing-checkpoint", "", "", "exit if --load has no checkpoint, instead of starting from step 0",
       flag(o.must_load), needs("--load")},
      {"--finetune", "", "", "load only the weights from --load, and start from step 0", flag(o.weights_only),
       needs(kLoads)},
      {"--no-load-optim", "", "", "do not load the optimizer state", flag_off(o.load_optimizer), needs(kLoads)},
      {"--no-save-optim", "", "", "do not save the optimizer state", flag_off(o.save_optimizer),
       only_with("--save-dir")}};
  group.options.insert(group.options.end(), more.begin(), more.end());
  return group;
}

OptionGroup output(PretrainGptCommand& command) {
  auto& o = command.options;
  auto& r = o.report;
  return {"Output",
          {{"--log-interval", "N", "100", "print a line every N steps", whole(r.log_interval, 1)},
           {"--log-throughput", "", "",
            "print TFLOP/s of a rank, tokens/s, and the share of what the machine's matrix products reach",
            flag(r.throughput)},
           {"--log-params-norm", "", "", "print the norm of the weights", flag(r.parameter_norm)},
           {"--log-num-zeros-in-grad", "", "", "print the number of zeros in the gradient", flag(r.zero_gradients)},
           {"--timing-log-level", "N", "0", "detail of timings: 0, 1 or 2", whole(r.timing_level, 0, 2)},
           {"--timing-log-option", "KIND", "minmax", "timings of which ranks: max, minmax or all",
            choice(r.timing, {"max", "minmax", "all"}), no_effect(kNoTimers, {"", has_timers})},
           {"--tensorboard-dir", "DIR", "", "write event files for TensorBoard to this folder", text(r.tensorboard)},
           {"--tensorboard-log-interval", "N", "1", "write to TensorBoard every N steps",
            whole(r.tensorboard_interval, 1), only_with("--tensorboard-dir")},
           {"--log-timers-to-tensorboard", "", "", "write timings to TensorBoard too", flag(r.timers_to_tensorboard),
            needs("--tensorboard-dir")},
           {"--trace", "FILE", "", "write a Chrome trace of all ranks (.json), or a folder with one trace per rank",
            text(r.trace)},
           {"--exit-interval", "N", "0", "exit after a step that is a multiple of N; 0: never", whole(o.exit_interval)},
           {"--exit-duration-in-mins", "X", "0", "exit after X minutes; 0: never", minutes(o.exit_after_seconds)},
           {"--json", "", "", "end with one line of JSON on standard output", flag(r.json)}}};
}

OptionGroup generation(PretrainGptCommand& command) {
  auto& g = command.options.generate;
  return {
      "Text",
      {{"--generate", "PROMPT", "", "continue this text after training (with --skip-train at once)", text(g.prompt)},
       {"--generate-tokens", "N", "64", "tokens to generate", whole(g.tokens, 1, kMostInt), only_with("--generate")},
       {"--temperature", "X", "1", "sampling temperature; 0: always the likeliest token", real(g.temperature, 0),
        only_with("--generate")},
       {"--top-k", "N", "0", "sample among the N likeliest tokens; 0: all", whole(g.top_k, 0, kMostInt),
        no_effect("without --generate, or with --temperature 0", {"", draws})}}};
}

}  // namespace

OptionTable pretrain_gpt_options(PretrainGptCommand& command) {
  command.options.batches.global_batch = 0;  // not given: micro batch x data parallel size
  return {.groups = {model(command), data(command), batches(command), optimizer(command), ranks(command),
                     evaluation(command), checkpoints(command), output(command), generation(command)},
          .foreign = options_of_megatron(),
          .checks = pretrain_gpt_checks(command)};
}

}  // namespace tutti::cli
