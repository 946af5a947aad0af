// What the options of pretrain_gpt mean together: what depends on more than one text, and what is missing.
#include <fmt/format.h>

#include <filesystem>

#include "apps/options/pretrain_gpt_options.h"
#include "apps/options/transformer_options.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/folder/folder.h"
#include "tutti/data/tokenizers/bpe.h"
#include "tutti/data/tokenizers/pretokens.h"

namespace tutti::cli {
namespace {

using Texts = const OptionTexts&;

Status check_required(const gpt::Options& o, Texts texts) {
  const char* const batch = texts.is("--parallel", "auto") ? "--global-batch-size" : "--micro-batch-size";
  for (const char* name :
       {"--num-layers", "--hidden-size", "--num-attention-heads", "--seq-length", "--max-position-embeddings", batch})
    if (!texts.has(name)) return usage(std::string(name) + " is missing", "pretrain_gpt --help has an example");
  if (o.train_steps == 0 && o.train_samples == 0 && !o.skip_train)
    return usage("--train-iters is missing: how many steps to train", "or --train-samples");
  if (!texts.has("--lr") && !o.skip_train) return usage("--lr is missing: the learning rate");
  return {};
}

// The kind of tokenizer: 0 NullTokenizer, 1 byte, 2 GPT2BPETokenizer, 3 TikTokenizer.
Result<int> tokenizer_kind(Texts texts) {
  const bool has_pair = texts.has("--vocab-file") || texts.has("--merge-file");
  const bool has_model = texts.has("--tokenizer-model");
  const std::string& type = texts.value("--tokenizer-type");
  int kind = has_pair ? 2 : has_model ? 3 : 0;
  if (!type.empty()) {
    kind = type == "NullTokenizer" ? 0 : type == "byte" ? 1 : type == "GPT2BPETokenizer" ? 2 : 3;
    if (kind != 2 && has_pair) return usage("--tokenizer-type " + type + " reads no --vocab-file");
    if (kind != 3 && has_model) return usage("--tokenizer-type " + type + " reads no --tokenizer-model");
  }
  if (kind > 0 && texts.has("--vocab-size"))
    return usage("--vocab-size is for NullTokenizer: another tokenizer has its own size", "drop it");
  return kind;
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(Texts texts) {
  const int kind = TUTTI_TRY(tokenizer_kind(texts));
  if (kind == 0) return std::unique_ptr<Tokenizer>();
  if (kind == 1) return byte_tokenizer();
  for (const char* file : {"--vocab-file", "--merge-file"})
    if (kind == 2 && !texts.has(file))
      return usage(std::string(file) + " is missing", "GPT-2's tokenizer has two files: vocab.json and merges.txt");
  if (kind == 3 && !texts.has("--tokenizer-model"))
    return usage("--tokenizer-model is missing: a .tiktoken file, or the .json file of Megatron-LM");
  BpeVocabulary vocabulary = kind == 2
                                 ? TUTTI_TRY(read_vocabulary(texts.value("--vocab-file"), texts.value("--merge-file")))
                                 : TUTTI_TRY(read_tiktoken(texts.value("--tokenizer-model")));
  const std::string& given = texts.value("--tiktoken-pattern");
  const std::string_view pattern = TUTTI_TRY(pretoken_pattern(given.empty() ? vocabulary.pattern : given));
  return bpe_tokenizer(std::move(vocabulary), pattern);
}

// The vocabulary, and the tokens that options about documents mean.
Status set_vocabulary(PretrainGptCommand& command, Texts texts) {
  command.tokenizer = TUTTI_TRY(make_tokenizer(texts));
  const Tokenizer* const tokenizer = command.tokenizer.get();
  gpt::Options& o = command.options;
  std::int64_t vocabulary = 0;
  if (tokenizer) {
    vocabulary = tokenizer->vocabulary();
  } else {
    if (!texts.has("--vocab-size"))
      return usage("there is no vocabulary: neither --vocab-size nor a tokenizer is given",
                   "--vocab-size N, --tokenizer-type byte, or --vocab-file and --merge-file");
    // NullTokenizer has one more, for the end of a document.
    vocabulary = 1 + TUTTI_TRY(whole_number("--vocab-size", texts.value("--vocab-size"), 1, std::int64_t(1) << 30));
  }
  o.model.vocabulary = int(std::min<std::int64_t>(vocabulary, std::numeric_limits<int>::max()));
  for (const auto& [flag, token] : {std::pair("--eod-mask-loss", &o.masked_token),
                                    {"--reset-position-ids", &o.end_of_document},
                                    {"--reset-attention-mask", &o.end_of_document}}) {
    if (!texts.is_given(flag)) continue;
    *token = vocabulary - 1;
    if (tokenizer) *token = tokenizer->end_of_document();
    if (!*token) return usage(std::string(flag) + ": the tokenizer has no token for the end of a document");
  }
  if (o.generate.prompt && !tokenizer)
    return usage("--generate needs a tokenizer to read the prompt and to write text",
                 "--tokenizer-type byte, or --vocab-file and --merge-file");
  return {};
}

// A fixed loss scale goes with every precision, as in Megatron-LM; an adaptive one is for f16.
Status set_precision(gpt::Options& o, Texts texts) {
  constexpr std::pair<const char*, Precision> kKinds[] = {
      {"--bf16", Precision::kBF16}, {"--fp16", Precision::kF16}, {"--fp64", Precision::kF64}};
  for (const auto& [flag, precision] : kKinds)
    if (texts.is_given(flag)) o.model.precision = precision;
  LossScaleOptions scale{.initial = 4294967296.0, .least = 1, .window = 1000, .hysteresis = 2};  // Megatron-LM's
  for (const auto& [name, target] : {std::pair("--initial-loss-scale", &scale.initial),
                                     {"--min-loss-scale", &scale.least},
                                     {"--loss-scale", &scale.initial}}) {
    if (!texts.has(name)) continue;
    *target = TUTTI_TRY(real_number(name, texts.value(name), 0, kAnyReal));
    if (!LossScale::is_usable(*target))
      return usage(fmt::format("{} is {}; expected a positive number within f32", name, *target));
  }
  scale.is_fixed = texts.has("--loss-scale");
  if (!scale.is_fixed && scale.least > scale.initial)
    return usage(fmt::format("--min-loss-scale {} is more than --initial-loss-scale {}", scale.least, scale.initial));
  for (const auto& [name, target] :
       {std::pair("--loss-scale-window", &scale.window), {"--hysteresis", &scale.hysteresis}})
    if (texts.has(name)) *target = TUTTI_TRY(whole_number(name, texts.value(name), 1, kMostWhole));
  if (o.model.precision == Precision::kF16 || scale.is_fixed) o.optimizer.loss_scale = scale;
  return {};
}

Status set_schedule(gpt::Options& o, Texts texts) {
  auto& p = o.parallel;
  constexpr const char *kStages = "--num-virtual-stages-per-pipeline-rank",
                       *kLayers = "--num-layers-per-virtual-pipeline-stage", *kSchedule = "--pipeline-schedule",
                       *kGroup = "--microbatch-group-size-per-virtual-pipeline-stage";
  if (texts.has(kLayers)) {
    const auto each = TUTTI_TRY(whole_number(kLayers, texts.value(kLayers), 1, std::numeric_limits<int>::max() / 8));
    if (o.model.layers % (p.grid.pipeline * each) != 0)
      return usage(fmt::format("{} layers cannot be divided into stages of {} ({}) on {} ranks", o.model.layers, each,
                               kLayers, p.grid.pipeline),
                   fmt::format("{} N, which divides them as equally as possible", kStages));
    p.chunks = int(o.model.layers / (p.grid.pipeline * each));
  }
  p.schedule = p.chunks > 1 ? ScheduleKind::kInterleaved : ScheduleKind::kOneForwardOneBackward;
  if (texts.has(kSchedule)) {
    std::vector<std::string> names;
    for (const ScheduleKind kind : kScheduleKinds) names.emplace_back(name(kind));
    p.schedule = kScheduleKinds[TUTTI_TRY(choose(kSchedule, texts.value(kSchedule), names))];
    if (p.schedule == ScheduleKind::kZeroBubbleV && !texts.has(kStages) && !texts.has(kLayers)) p.chunks = 2;
  }
  if (p.microbatch_group > 0 && p.schedule != ScheduleKind::kInterleaved)
    return usage(std::string(kGroup) + " is for --pipeline-schedule interleaved");
  return {};
}

Status set_ranks(gpt::Options& o, Texts texts) {
  auto& p = o.parallel;
  if (texts.is_given("--use-tp-pp-dp-mapping")) p.grid.order = "tp-cp-ep-pp-dp";
  p.sequence_parallel = texts.is_given("--sequence-parallel") && p.grid.tensor > 1;
  TUTTI_TRY(set_schedule(o, texts));
  if (texts.is("--recompute-granularity", "full")) {
    p.recompute.method = texts.is("--recompute-method", "block") ? RecomputeMethod::kBlock : RecomputeMethod::kUniform;
  } else if (texts.has("--recompute-method") || texts.has("--recompute-num-layers")) {
    // "selective" recomputes attention scores, which is always done here.
    return usage("--recompute-method and --recompute-num-layers are for --recompute-granularity full");
  }
  return {};
}

// What --parallel auto may not change.
Status set_given_parts(PretrainGptCommand& command, Texts texts) {
  if (!command.chooses_parallel) return {};
  for (const char* name : {"--rampup-batch-size", "--step-batch-size-schedule"})
    if (texts.is_given(name))
      return usage(std::string(name) + " changes the batch, and --parallel auto chooses for one size",
                   "drop one of them");
  for (const char* name :
       {"--num-layers-per-virtual-pipeline-stage", "--microbatch-group-size-per-virtual-pipeline-stage"})
    if (texts.is_given(name))
      return usage(std::string(name) + " is no part of what --parallel auto chooses", "drop one of them");
  const gpt::ParallelOptions& p = command.options.parallel;
  const auto give = [&](const char* name, std::string part) {
    if (texts.is_given(name)) command.given_parts.push_back(std::move(part));
  };
  give("--tensor-model-parallel-size", fmt::format("tp={}", p.grid.tensor));
  give("--context-parallel-size", fmt::format("cp={}", p.grid.context));
  give("--pipeline-model-parallel-size", fmt::format("pp={}", p.grid.pipeline));
  give("--num-virtual-stages-per-pipeline-rank", fmt::format("chunks={}", p.chunks));
  if (p.end_layers.first) command.given_parts.push_back(fmt::format("first={}", *p.end_layers.first));
  if (p.end_layers.last) command.given_parts.push_back(fmt::format("last={}", *p.end_layers.last));
  give("--pipeline-schedule", fmt::format("schedule={}", name(p.schedule)));
  give("--micro-batch-size", fmt::format("mbs={}", command.options.batches.micro_batch));
  give("--sequence-parallel", "sp");
  give("--use-distributed-optimizer", "zero=1");
  give("--fsdp", "zero=3");
  give("--overlap-grad-reduce", "overlap");
  if (p.recompute.method != RecomputeMethod::kNone)
    command.given_parts.push_back(p.recompute.method == RecomputeMethod::kBlock
                                      ? fmt::format("recompute={}", p.recompute.layers)
                                      : "recompute=full");
  return {};
}

// The number of samples where --train-iters is given, and the lengths of schedules, depend on the size of the world as
// far as --global-batch-size does: gpt::for_world() sets them.
Status set_batches(gpt::Options& o, Texts texts) {
  constexpr const char *kRampUp = "--rampup-batch-size", *kSteps = "--step-batch-size-schedule";
  if (texts.has(kRampUp) && o.batches.global_batch == 0)
    return usage(std::string(kRampUp) + " leads to --global-batch-size, which is not given");
  if (!texts.has(kSteps)) return {};
  try {
    o.batches.steps = parse_batch_steps(texts.value(kSteps), o.model.sequence_length);
  } catch (const Exception& failure) {
    return usage(std::string(kSteps) + ": " + failure.error().detail);
  }
  return {};
}

Status set_optimizer(gpt::Options& o, Texts texts) {
  const auto& rate = o.optimizer.learning_rate;
  for (const auto& [name, lower] : {std::pair("--min-lr", rate.least), {"--lr-warmup-init", rate.at_start}})
    if (lower > rate.most && texts.has("--lr"))
      return usage(fmt::format("{} {} is more than --lr {}", name, lower, rate.most));
  if (rate.style == DecayStyle::kWarmUpStableDecay && o.optimizer.anneal.steps + o.optimizer.anneal.samples == 0)
    return usage("--lr-decay-style WSD needs the step at which the rate falls",
                 "--lr-wsd-decay-iters or --lr-wsd-decay-samples");
  auto& decay = o.optimizer.weight_decay;
  constexpr const char *kStart = "--start-weight-decay", *kEnd = "--end-weight-decay";
  if (decay.style == IncreaseStyle::kConstant) {
    if (texts.has(kStart) || texts.has(kEnd))
      return usage(fmt::format("{} and {} are for a --weight-decay-incr-style other than constant", kStart, kEnd));
    decay.end = decay.start;
    return {};
  }
  if (!texts.has(kStart) || !texts.has(kEnd))
    return usage(fmt::format("--weight-decay-incr-style needs {} and {}", kStart, kEnd));
  decay.start = TUTTI_TRY(real_number(kStart, texts.value(kStart), 0, kAnyReal));
  decay.end = TUTTI_TRY(real_number(kEnd, texts.value(kEnd), 0, kAnyReal));
  return {};
}

Status set_data(gpt::Options& o, Texts texts) {
  auto& d = o.data;
  d.sequence_length = o.model.sequence_length;
  d.vocabulary = o.model.vocabulary;
  d.seed = std::uint32_t(o.model.seed);
  const bool has_apart =
      texts.has("--train-data-path") || texts.has("--valid-data-path") || texts.has("--test-data-path");
  if (!d.mock && !has_apart && !texts.has("--data-path"))
    return usage("there is no data: none of --data-path, --train-data-path and --mock-data is given",
                 "--mock-data for a try; tutti data tokenize makes files of text");
  if (texts.has("--split") && !d.mock) {
    if (!texts.has("--data-path")) return usage("--split divides --data-path, which is not given");
    d.split = texts.value("--split");
  }
  o.order = texts.is("--dataloader-type", "single") ? SampleOrder::kSequential
            : texts.is_given("--no-data-sharding")  ? SampleOrder::kRandom
                                                    : SampleOrder::kRandomSharded;
  return {};
}

Status set_start(gpt::Options& o, Texts texts) {
  // --load DIR is --resume DIR, but that DIR need not have a checkpoint yet.
  if (texts.is_active("--resume") && !texts.is("--resume", "never")) {
    o.load = o.checkpoints.resume;
    o.must_load = true;
    o.checkpoints.resume = "auto";
  }
  if (texts.has("--ckpt-step")) {
    const auto step = TUTTI_TRY(whole_number("--ckpt-step", texts.value("--ckpt-step"), 0, kMostWhole));
    o.load = (std::filesystem::path(o.load) / checkpoint_folder_name(step)).string();
    o.must_load = true;
  }
  return {};
}

}  // namespace

std::vector<std::function<Status(const OptionTexts&)>> pretrain_gpt_checks(PretrainGptCommand& command) {
  gpt::Options& o = command.options;
  return {[&o](Texts texts) { return check_required(o, texts); },
          [&command](Texts texts) { return set_vocabulary(command, texts); },
          [&o](Texts texts) { return set_transformer_shape(o.model, texts); },
          [&o](Texts texts) { return set_precision(o, texts); },
          [&o](Texts texts) { return set_ranks(o, texts); },
          [&command](Texts texts) { return set_given_parts(command, texts); },
          [&o](Texts texts) { return set_batches(o, texts); },
          [&o](Texts texts) { return set_optimizer(o, texts); },
          [&o](Texts texts) { return set_data(o, texts); },
          [&o](Texts texts) { return set_start(o, texts); }};
}

}  // namespace tutti::cli
