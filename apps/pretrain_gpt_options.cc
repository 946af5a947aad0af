// One table holds every option: its group in the help, its default as text, its words. What the texts mean together is
// in pretrain_gpt_interpret.cc.
#include "apps/pretrain_gpt_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/command_line.h"
#include "tutti/base/text.h"
#include "tutti/data/tokenizers/bpe.h"
#include "tutti/data/tokenizers/pretokens.h"

namespace tutti::cli {
namespace {

enum class Takes { kValue, kWords, kNothing };

struct Declared {
  const char* group;
  const char* name;
  Takes takes;
  const char* by_default;
  const char* type;
  const char* words;
};

constexpr Declared kOptions[] = {
    {"Model", "--num-layers", Takes::kValue, "", "N", "transformer layers"},
    {"Model", "--hidden-size", Takes::kValue, "", "N", "numbers of a token between layers"},
    {"Model", "--num-attention-heads", Takes::kValue, "", "N", "heads of attention"},
    {"Model", "--ffn-hidden-size", Takes::kValue, "", "N",
     "numbers within an MLP (4 x hidden size; with --swiglu two thirds of that, to a multiple of 64)"},
    {"Model", "--kv-channels", Takes::kValue, "", "N", "numbers of a head (hidden size / heads)"},
    {"Model", "--group-query-attention", Takes::kNothing, "", "", "heads share keys and values in groups"},
    {"Model", "--num-query-groups", Takes::kValue, "1", "N", "with it: how many groups"},
    {"Model", "--max-position-embeddings", Takes::kValue, "", "N", "positions that the model knows"},
    {"Model", "--position-embedding-type", Takes::kValue, "learned_absolute", "KIND", "learned_absolute, rope or none"},
    {"Model", "--rotary-base", Takes::kValue, "10000", "X", "rope: period of the slowest pair"},
    {"Model", "--rotary-percent", Takes::kValue, "1", "X", "rope: the share of a head that is turned"},
    {"Model", "--normalization", Takes::kValue, "LayerNorm", "KIND", "LayerNorm or RMSNorm"},
    {"Model", "--norm-epsilon", Takes::kValue, "1e-5", "X", "added to the variance"},
    {"Model", "--swiglu", Takes::kNothing, "", "", "MLPs are silu(gate) * up"},
    {"Model", "--squared-relu", Takes::kNothing, "", "", "MLPs have relu(x)^2 for GELU"},
    {"Model", "--disable-bias-linear", Takes::kNothing, "", "", "linear layers without bias"},
    {"Model", "--untie-embeddings-and-output-weights", Takes::kNothing, "", "",
     "the output layer has weights of its own"},
    {"Model", "--make-vocab-size-divisible-by", Takes::kValue, "128", "N",
     "rows of the word embedding are filled up to a multiple of N x tensor parallel size"},
    {"Model", "--attention-dropout", Takes::kValue, "0.1", "X", "of the weights of attention"},
    {"Model", "--hidden-dropout", Takes::kValue, "0.1", "X", "of what is added to the residual, and of the embedding"},
    {"Model", "--init-method-std", Takes::kValue, "0.02", "X", "standard deviation of the first weights"},
    {"Model", "--seed", Takes::kValue, "1234", "N", "of weights, dropout and data"},
    {"Model", "--bf16", Takes::kNothing, "", "", "matrix products in bf16; weights and sums stay f32"},
    {"Model", "--fp16", Takes::kNothing, "", "", "matrix products in f16, with a loss scale (LibTorch 2.4)"},
    {"Model", "--loss-scale", Takes::kValue, "", "X", "a fixed one (with --fp16 it adapts; else none)"},
    {"Model", "--initial-loss-scale", Takes::kValue, "", "X", "where it begins (4294967296)"},
    {"Model", "--min-loss-scale", Takes::kValue, "", "X", "the least; an infinity at it ends the run (1)"},
    {"Model", "--loss-scale-window", Takes::kValue, "", "N", "steps without an infinity before it doubles (1000)"},
    {"Model", "--hysteresis", Takes::kValue, "", "N", "at so many infinities it begins to be halved (2)"},
    {"Model", "--fp64", Takes::kNothing, "", "", "all in f64: to compare grids"},
    {"Model", "--deterministic-mode", Takes::kNothing, "", "", "one compute thread, and no operator without an order"},

    {"Data", "--data-path", Takes::kWords, "", "WORDS", "PREFIX of .bin and .idx, or WEIGHT PREFIX WEIGHT PREFIX ..."},
    {"Data", "--split", Takes::kValue, "", "A,B,C",
     "shares of --data-path for training, validation and test (969, 30, 1)"},
    {"Data", "--train-data-path", Takes::kWords, "", "WORDS", "in place of --data-path: for training"},
    {"Data", "--valid-data-path", Takes::kWords, "", "WORDS", "for validation"},
    {"Data", "--test-data-path", Takes::kWords, "", "WORDS", "for the test"},
    {"Data", "--mock-data", Takes::kNothing, "", "", "made up: each sample counts up"},
    {"Data", "--seq-length", Takes::kValue, "", "N", "tokens of a sample"},
    {"Data", "--dataloader-type", Takes::kValue, "single", "KIND",
     "single: samples in their shuffled order, once; cyclic: shuffled anew each epoch"},
    {"Data", "--no-data-sharding", Takes::kNothing, "", "", "cyclic: all replicas share one order"},
    {"Data", "--eod-mask-loss", Takes::kNothing, "", "", "what follows the end of a document is not learned"},
    {"Data", "--reset-position-ids", Takes::kNothing, "", "", "positions begin anew with each document of a sample"},
    {"Data", "--reset-attention-mask", Takes::kNothing, "", "", "documents of a sample do not see each other"},
    {"Data", "--tokenizer-type", Takes::kValue, "", "NAME",
     "NullTokenizer (--vocab-size says it all), byte, GPT2BPETokenizer, TikTokenizer (as the files say that are "
     "given)"},
    {"Data", "--vocab-size", Takes::kValue, "", "N", "NullTokenizer: tokens, with one more for the end of a document"},
    {"Data", "--vocab-file", Takes::kValue, "", "FILE", "vocab.json"},
    {"Data", "--merge-file", Takes::kValue, "", "FILE", "merges.txt"},
    {"Data", "--tokenizer-model", Takes::kValue, "", "FILE", "a .tiktoken file"},

    {"Batches", "--micro-batch-size", Takes::kValue, "", "N", "samples that a replica takes at once"},
    {"Batches", "--global-batch-size", Takes::kValue, "", "N",
     "samples of a step, over all replicas (micro batch x data parallel size)"},
    {"Batches", "--rampup-batch-size", Takes::kWords, "", "N N N", "begin with N, add N at a time, over N samples"},
    {"Batches", "--step-batch-size-schedule", Takes::kValue, "", "TEXT",
     "\"0:768 250B:1536\": from so many tokens on such a batch"},
    {"Batches", "--decrease-batch-size-if-needed", Takes::kNothing, "", "", "round a batch that does not divide down"},
    {"Batches", "--train-iters", Takes::kValue, "", "N", "steps; or"},
    {"Batches", "--train-samples", Takes::kValue, "", "N", "samples"},

    {"Optimizer", "--optimizer", Takes::kValue, "adam", "NAME", "adam (AdamW) or sgd"},
    {"Optimizer", "--lr", Takes::kValue, "", "X", "learning rate after the warm-up"},
    {"Optimizer", "--min-lr", Takes::kValue, "0", "X", "learning rate at the end"},
    {"Optimizer", "--lr-decay-style", Takes::kValue, "linear", "KIND",
     "constant, linear, cosine, inverse-square-root or WSD"},
    {"Optimizer", "--lr-decay-iters", Takes::kValue, "", "N", "steps until --min-lr (all)"},
    {"Optimizer", "--lr-decay-samples", Takes::kValue, "", "N", "the same with --train-samples"},
    {"Optimizer", "--lr-warmup-iters", Takes::kValue, "0", "N", "steps of a linear warm-up"},
    {"Optimizer", "--lr-warmup-samples", Takes::kValue, "0", "N", "the same with --train-samples"},
    {"Optimizer", "--lr-warmup-fraction", Takes::kValue, "", "X", "or a share of the decay"},
    {"Optimizer", "--lr-warmup-init", Takes::kValue, "0", "X", "where the warm-up begins"},
    {"Optimizer", "--lr-wsd-decay-style", Takes::kValue, "exponential", "KIND",
     "WSD: linear, cosine, exponential or minus_sqrt"},
    {"Optimizer", "--lr-wsd-decay-iters", Takes::kValue, "", "N", "WSD: the last so many steps fall"},
    {"Optimizer", "--lr-wsd-decay-samples", Takes::kValue, "", "N", "the same with --train-samples"},
    {"Optimizer", "--weight-decay", Takes::kValue, "0.01", "X", "of matrices; biases and norms have none"},
    {"Optimizer", "--start-weight-decay", Takes::kValue, "", "X", "with --weight-decay-incr-style: from"},
    {"Optimizer", "--end-weight-decay", Takes::kValue, "", "X", "to"},
    {"Optimizer", "--weight-decay-incr-style", Takes::kValue, "constant", "KIND", "constant, linear or cosine"},
    {"Optimizer", "--clip-grad", Takes::kValue, "1", "X", "longest gradient, over all ranks; 0: any"},
    {"Optimizer", "--adam-beta1", Takes::kValue, "0.9", "X", "decay of the mean"},
    {"Optimizer", "--adam-beta2", Takes::kValue, "0.999", "X", "decay of the squares"},
    {"Optimizer", "--adam-eps", Takes::kValue, "1e-8", "X", "added to the root of the squares"},
    {"Optimizer", "--sgd-momentum", Takes::kValue, "0.9", "X", "sgd: momentum"},
    {"Optimizer", "--use-distributed-optimizer", Takes::kNothing, "", "",
     "replicas share the optimizer's work and memory (ZeRO-1)"},
    {"Optimizer", "--overlap-grad-reduce", Takes::kNothing, "", "", "gradients are averaged while backward runs"},

    {"Ranks", "--tensor-model-parallel-size", Takes::kValue, "1", "N", "ranks that share every layer"},
    {"Ranks", "--sequence-parallel", Takes::kNothing, "", "", "they share norms and dropout too, by tokens"},
    {"Ranks", "--pipeline-model-parallel-size", Takes::kValue, "1", "N", "ranks one behind the other, by layers"},
    {"Ranks", "--num-virtual-stages-per-pipeline-rank", Takes::kValue, "", "N", "stages of each (interleaved)"},
    {"Ranks", "--num-layers-per-virtual-pipeline-stage", Takes::kValue, "", "N", "or: layers of a stage"},
    {"Ranks", "--microbatch-group-size-per-virtual-pipeline-stage", Takes::kValue, "", "N",
     "interleaved: microbatches before the next stage has its turn"},
    {"Ranks", "--pipeline-schedule", Takes::kValue, "", "NAME",
     "fill-drain, 1f1b, interleaved, zb-h1 or zb-v (1f1b; with several stages a rank interleaved)"},
    {"Ranks", "--decoder-first-pipeline-num-layers", Takes::kValue, "", "N", "layers of the first stage"},
    {"Ranks", "--decoder-last-pipeline-num-layers", Takes::kValue, "", "N", "layers of the last stage"},
    {"Ranks", "--context-parallel-size", Takes::kValue, "1", "N", "ranks that share every sequence (ring attention)"},
    {"Ranks", "--use-tp-pp-dp-mapping", Takes::kNothing, "", "", "number ranks tensor, pipeline, data"},
    {"Ranks", "--distributed-backend", Takes::kValue, "tutti", "NAME", "what carries the bytes: tutti, gloo or mpi"},
    {"Ranks", "--distributed-timeout-minutes", Takes::kValue, "10", "X", "longest wait for another rank"},
    {"Ranks", "--recompute-granularity", Takes::kValue, "", "KIND",
     "full: layers are computed again in backward, and only their inputs kept"},
    {"Ranks", "--recompute-method", Takes::kValue, "", "KIND",
     "full: uniform (runs of layers) or block (the first of a stage)"},
    {"Ranks", "--recompute-num-layers", Takes::kValue, "", "N", "layers of a run, or of the block (1)"},

    {"Evaluation", "--eval-iters", Takes::kValue, "100", "N", "batches of an evaluation; 0: none"},
    {"Evaluation", "--eval-interval", Takes::kValue, "", "N", "steps between evaluations (only at the end)"},
    {"Evaluation", "--skip-train", Takes::kNothing, "", "", "only evaluate"},

    {"Checkpoints", "--save", Takes::kValue, "", "DIR", "keep what is needed to go on, on this grid or another"},
    {"Checkpoints", "--save-interval", Takes::kValue, "0", "N", "steps between checkpoints (only at the end)"},
    {"Checkpoints", "--save-retain-interval", Takes::kValue, "0", "N", "with --keep: those of every N steps stay"},
    {"Checkpoints", "--keep", Takes::kValue, "0", "N", "older ones are removed, so that N are there; 0: none is"},
    {"Checkpoints", "--async-save", Takes::kNothing, "", "", "training goes on while a copy is written"},
    {"Checkpoints", "--save-dir-per-node", Takes::kNothing, "", "", "--save is another folder on each node"},
    {"Checkpoints", "--memory-copy-interval", Takes::kValue, "0", "N",
     "steps between copies in memory that tutti run keeps, to go on from after a restart"},
    {"Checkpoints", "--load", Takes::kValue, "", "DIR", "go on from the newest there"},
    {"Checkpoints", "--ckpt-step", Takes::kValue, "", "N", "of --load: that of this step"},
    {"Checkpoints", "--exit-on-missing-checkpoint", Takes::kNothing, "", "",
     "where --load has none: leave, not begin anew"},
    {"Checkpoints", "--finetune", Takes::kNothing, "", "", "only the weights of --load, from step 0"},
    {"Checkpoints", "--no-load-optim", Takes::kNothing, "", "", "the optimizer's state begins anew"},
    {"Checkpoints", "--no-save-optim", Takes::kNothing, "", "", "the optimizer's state is not saved"},

    {"Output", "--log-interval", Takes::kValue, "100", "N", "steps between lines"},
    {"Output", "--log-throughput", Takes::kNothing, "", "",
     "TFLOP/s of a rank, tokens/s, and the share of what the machine's matrix products reach"},
    {"Output", "--log-params-norm", Takes::kNothing, "", "", "norm of the weights"},
    {"Output", "--log-num-zeros-in-grad", Takes::kNothing, "", "", "zeros in the gradient"},
    {"Output", "--timing-log-level", Takes::kValue, "0", "N", "0, 1 or 2: how finely time is told"},
    {"Output", "--timing-log-option", Takes::kValue, "minmax", "KIND", "over ranks: max, minmax or all"},
    {"Output", "--tensorboard-dir", Takes::kValue, "", "DIR", "event files for TensorBoard"},
    {"Output", "--tensorboard-log-interval", Takes::kValue, "1", "N", "steps between its points"},
    {"Output", "--log-timers-to-tensorboard", Takes::kNothing, "", "", "with the timers"},
    {"Output", "--trace", Takes::kValue, "", "FILE", "Chrome trace of all ranks (.json), or a folder with one of each"},
    {"Output", "--exit-interval", Takes::kValue, "0", "N", "leave after a step that is a multiple of N"},
    {"Output", "--exit-duration-in-mins", Takes::kValue, "0", "X", "leave after X minutes"},
    {"Output", "--json", Takes::kNothing, "", "", "end with one line of JSON on standard output"},

    {"Text", "--generate", Takes::kValue, "", "PROMPT", "at the end (with --skip-train at once): go on with this text"},
    {"Text", "--generate-tokens", Takes::kValue, "64", "N", "tokens to add"},
    {"Text", "--temperature", Takes::kValue, "1", "X", "0: always the likeliest token"},
    {"Text", "--top-k", Takes::kValue, "0", "N", "draw among the N likeliest; 0: all"},
};

}  // namespace

void PretrainGptCommandLine::declare(CLI::App& app) {
  app.set_help_flag("-h,--help", "this text");
  app.get_formatter()->column_width(44);
  app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  for (const auto& option : kOptions) {
    const std::string words =
        *option.by_default ? fmt::format("{} ({})", option.words, option.by_default) : std::string(option.words);
    CLI::Option* made = nullptr;
    switch (option.takes) {
      case Takes::kValue:
        texts_.values[option.name] = option.by_default;
        made = app.add_option(option.name, texts_.values[option.name], words)->type_name(option.type);
        break;
      case Takes::kWords:
        made = app.add_option(option.name, texts_.words[option.name], words)
                   ->type_name(option.type)
                   ->multi_option_policy(CLI::MultiOptionPolicy::Throw)
                   ->expected(1, 1 << 20);
        break;
      case Takes::kNothing:
        made = app.add_flag(option.name, texts_.flags[option.name] = false, words);
        break;
    }
    declared_[option.name] = made->group(option.group);
  }
  for (const auto& option : refused_pretraining_options())  // not in the help
    refused_[option.name] = option.takes_value ? app.add_option(option.name, unused_, "")->group("")
                                               : app.add_flag(std::string(option.name))->group("");
}

Status PretrainGptCommandLine::refuse() const {
  for (const auto& option : refused_pretraining_options()) {
    if (refused_.at(option.name)->count() == 0) continue;
    return usage(fmt::format("{} is not here: {}", option.name, option.why), option.instead);
  }
  return {};
}

Result<gpt::Options> PretrainGptCommandLine::interpret(const Tokenizer* tokenizer) const {
  TUTTI_TRY(refuse());
  std::int64_t vocabulary = 0;
  if (tokenizer) {
    vocabulary = tokenizer->vocabulary();
  } else {
    if (!texts_.has("--vocab-size"))
      return usage("there is no vocabulary: neither --vocab-size nor a tokenizer is given",
                   "--vocab-size N, --tokenizer-type byte, or --vocab-file and --merge-file");
    // NullTokenizer has one more, for the end of a document.
    vocabulary = 1 + TUTTI_TRY(whole_number("--vocab-size", texts_.value("--vocab-size"), 1, std::int64_t(1) << 30));
  }
  auto options = TUTTI_TRY(interpret_pretraining(texts_, vocabulary));
  options.reset_positions = texts_.flag("--reset-position-ids");
  options.reset_attention = texts_.flag("--reset-attention-mask");
  for (const auto& [flag, token] : {std::pair("--eod-mask-loss", &options.masked_token),
                                    {"--reset-position-ids", &options.end_of_document},
                                    {"--reset-attention-mask", &options.end_of_document}}) {
    if (!texts_.flag(flag)) continue;
    *token = vocabulary - 1;
    if (tokenizer) *token = tokenizer->end_of_document();
    if (!*token) return usage(std::string(flag) + ": the tokenizer has no token for the end of a document");
  }
  if (options.generate.prompt && !tokenizer)
    return usage("--generate needs a tokenizer to read the prompt and to write text",
                 "--tokenizer-type byte, or --vocab-file and --merge-file");
  return options;
}

Result<std::unique_ptr<Tokenizer>> PretrainGptCommandLine::tokenizer() const {
  TUTTI_TRY(refuse());
  const std::string &type = texts_.value("--tokenizer-type"), &vocabulary = texts_.value("--vocab-file"),
                    &merges = texts_.value("--merge-file"), &model = texts_.value("--tokenizer-model");
  const bool has_pair = !vocabulary.empty() || !merges.empty(), has_model = !model.empty();
  if (has_pair && has_model) return usage("--vocab-file and --tokenizer-model are two tokenizers", "give one of them");
  const std::vector<std::string> types = {"NullTokenizer", "byte", "GPT2BPETokenizer", "TikTokenizer"};
  std::size_t kind = has_pair ? 2 : has_model ? 3 : 0;
  if (!type.empty()) {
    kind = TUTTI_TRY(choose("--tokenizer-type", type, types));
    if (kind != 2 && has_pair) return usage("--tokenizer-type " + type + " reads no --vocab-file");
    if (kind != 3 && has_model) return usage("--tokenizer-type " + type + " reads no --tokenizer-model");
  }
  if (kind > 0 && texts_.has("--vocab-size"))
    return usage("--vocab-size is for NullTokenizer: of another tokenizer it is known", "leave it out");
  if (kind == 0) return std::unique_ptr<Tokenizer>();
  if (kind == 1) return byte_tokenizer();
  if (kind == 2 && (vocabulary.empty() || merges.empty()))
    return usage(std::string(vocabulary.empty() ? "--vocab-file" : "--merge-file") + " is missing",
                 "GPT-2's tokenizer has two files: vocab.json and merges.txt");
  if (kind == 3 && model.empty()) return usage("--tokenizer-model is missing: a .tiktoken file");
  const std::string_view pattern = TUTTI_TRY(pretoken_pattern("gpt2"));
  return bpe_tokenizer(kind == 2 ? TUTTI_TRY(read_vocabulary(vocabulary, merges)) : TUTTI_TRY(read_tiktoken(model)),
                       pattern);
}

Result<std::string> PretrainGptCommandLine::backend() const {
  const std::string& given = texts_.value("--distributed-backend");
  if (given == "nccl")
    return usage("--distributed-backend nccl: pretrain_gpt computes on CPUs", "known are tutti, gloo and mpi");
  (void)TUTTI_TRY(choose("--distributed-backend", given, {"tutti", "gloo", "mpi"}));
  return given;
}

Result<Duration> PretrainGptCommandLine::collective_timeout() const {
  constexpr const char* kName = "--distributed-timeout-minutes";
  const double minutes = TUTTI_TRY(real_number(kName, texts_.value(kName), 0, 1e6));
  if (minutes <= 0) return usage(std::string(kName) + " needs a number above 0");
  return from_seconds(60 * minutes);
}

std::vector<std::string> PretrainGptCommandLine::without_effect() const {
  std::set<std::string> given;
  for (const auto& [name, option] : declared_)
    if (option->count() > 0) given.insert(name);
  return options_without_effect(texts_, given);
}

std::vector<std::pair<std::string, std::string>> PretrainGptCommandLine::texts() const {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& [name, value] : texts_.values) texts.emplace_back(name, value.empty() ? "not given" : value);
  for (const auto& [name, words] : texts_.words)
    texts.emplace_back(name, words.empty() ? "not given" : join(words, " "));
  for (const auto& [name, value] : texts_.flags) texts.emplace_back(name, value ? "given" : "not given");
  return texts;
}

}  // namespace tutti::cli
