// One table holds every option: its group in the help, its default as text, its words. What the texts mean together is
// in pretrain_gpt_interpret.cc.
#include "apps/options/pretrain_gpt_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "apps/options/command_line.h"
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
    {"Model", "--hidden-size", Takes::kValue, "", "N", "hidden dimension of the transformer"},
    {"Model", "--num-attention-heads", Takes::kValue, "", "N", "attention heads"},
    {"Model", "--ffn-hidden-size", Takes::kValue, "", "N",
     "hidden dimension of an MLP (4 x hidden size; with --swiglu two thirds of that, as a multiple of 64)"},
    {"Model", "--kv-channels", Takes::kValue, "", "N", "dimension of a head (hidden size / heads)"},
    {"Model", "--group-query-attention", Takes::kNothing, "", "",
     "grouped-query attention: groups of heads share keys and values"},
    {"Model", "--num-query-groups", Takes::kValue, "1", "N", "with --group-query-attention: number of groups"},
    {"Model", "--max-position-embeddings", Takes::kValue, "", "N", "number of positions of the model"},
    {"Model", "--position-embedding-type", Takes::kValue, "learned_absolute", "KIND", "learned_absolute, rope or none"},
    {"Model", "--rotary-base", Takes::kValue, "10000", "X", "rope: period of the slowest pair"},
    {"Model", "--rotary-percent", Takes::kValue, "1", "X", "rope: share of a head's dimension that is rotated"},
    {"Model", "--normalization", Takes::kValue, "LayerNorm", "KIND", "LayerNorm or RMSNorm"},
    {"Model", "--norm-epsilon", Takes::kValue, "1e-5", "X", "epsilon added to the variance"},
    {"Model", "--swiglu", Takes::kNothing, "", "", "use silu(gate) * up in MLPs"},
    {"Model", "--squared-relu", Takes::kNothing, "", "", "use relu(x)^2 in MLPs instead of GELU"},
    {"Model", "--disable-bias-linear", Takes::kNothing, "", "", "use linear layers without bias"},
    {"Model", "--untie-embeddings-and-output-weights", Takes::kNothing, "", "",
     "give the output layer its own weights"},
    {"Model", "--make-vocab-size-divisible-by", Takes::kValue, "128", "N",
     "pad the word embedding to a multiple of N x tensor parallel size rows"},
    {"Model", "--attention-dropout", Takes::kValue, "0.1", "X", "dropout of the attention weights"},
    {"Model", "--hidden-dropout", Takes::kValue, "0.1", "X",
     "dropout of the embedding and of what is added to the residual"},
    {"Model", "--init-method-std", Takes::kValue, "0.02", "X", "standard deviation of the initial weights"},
    {"Model", "--seed", Takes::kValue, "1234", "N", "seed of weights, dropout and data"},
    {"Model", "--bf16", Takes::kNothing, "", "", "compute matrix products in bf16; weights and sums stay f32"},
    {"Model", "--fp16", Takes::kNothing, "", "",
     "compute matrix products in f16, with a loss scale (needs LibTorch 2.4)"},
    {"Model", "--loss-scale", Takes::kValue, "", "X", "fixed loss scale (default: adaptive with --fp16, else none)"},
    {"Model", "--initial-loss-scale", Takes::kValue, "", "X", "initial value of the adaptive loss scale (4294967296)"},
    {"Model", "--min-loss-scale", Takes::kValue, "", "X", "least loss scale; an infinity at it ends the run (1)"},
    {"Model", "--loss-scale-window", Takes::kValue, "", "N",
     "steps without an infinity before the loss scale doubles (1000)"},
    {"Model", "--hysteresis", Takes::kValue, "", "N",
     "number of infinities at which the loss scale begins to be halved (2)"},
    {"Model", "--fp64", Takes::kNothing, "", "", "compute in f64, to compare grids of ranks"},
    {"Model", "--deterministic-mode", Takes::kNothing, "", "",
     "use one compute thread and deterministic operators only"},

    {"Data", "--data-path", Takes::kWords, "", "WORDS",
     "tokens: the PREFIX of .bin and .idx files, or WEIGHT PREFIX WEIGHT PREFIX ..."},
    {"Data", "--split", Takes::kValue, "", "A,B,C",
     "shares of --data-path for training, validation and test (969, 30, 1)"},
    {"Data", "--train-data-path", Takes::kWords, "", "WORDS", "training data, instead of --data-path"},
    {"Data", "--valid-data-path", Takes::kWords, "", "WORDS", "validation data"},
    {"Data", "--test-data-path", Takes::kWords, "", "WORDS", "test data"},
    {"Data", "--mock-data", Takes::kNothing, "", "", "mock data: each sample counts up"},
    {"Data", "--seq-length", Takes::kValue, "", "N", "sequence length in tokens"},
    {"Data", "--dataloader-type", Takes::kValue, "single", "KIND",
     "single: shuffle the samples once; cyclic: shuffle them again in each epoch"},
    {"Data", "--no-data-sharding", Takes::kNothing, "", "", "cyclic: shuffle all data, not the shard of each replica"},
    {"Data", "--eod-mask-loss", Takes::kNothing, "", "", "do not learn what follows the end of a document"},
    {"Data", "--reset-position-ids", Takes::kNothing, "", "", "restart positions at each document of a sample"},
    {"Data", "--reset-attention-mask", Takes::kNothing, "", "", "documents of a sample do not see each other"},
    {"Data", "--tokenizer-type", Takes::kValue, "", "NAME",
     "NullTokenizer (needs only --vocab-size), byte, GPT2BPETokenizer or TikTokenizer (default: chosen by the given "
     "files)"},
    {"Data", "--vocab-size", Takes::kValue, "", "N",
     "NullTokenizer: number of tokens; the end of a document is one more"},
    {"Data", "--vocab-file", Takes::kValue, "", "FILE", "GPT2BPETokenizer: vocab.json"},
    {"Data", "--merge-file", Takes::kValue, "", "FILE", "GPT2BPETokenizer: merges.txt"},
    {"Data", "--tokenizer-model", Takes::kValue, "", "FILE",
     "TikTokenizer: a .tiktoken file, or the .json file of Megatron-LM"},
    {"Data", "--tiktoken-pattern", Takes::kValue, "", "NAME",
     "TikTokenizer: how text is cut, v1, v2, gpt2 or cl100k (v2 for the .json file, else gpt2)"},

    {"Batches", "--micro-batch-size", Takes::kValue, "", "N", "samples of a microbatch on one replica"},
    {"Batches", "--global-batch-size", Takes::kValue, "", "N",
     "samples of a step over all replicas (micro batch x data parallel size)"},
    {"Batches", "--rampup-batch-size", Takes::kWords, "", "N N N",
     "first global batch size, its increment, and the samples over which it grows"},
    {"Batches", "--step-batch-size-schedule", Takes::kValue, "", "TEXT",
     "global batch size from a number of tokens on, such as \"0:768 250B:1536\""},
    {"Batches", "--decrease-batch-size-if-needed", Takes::kNothing, "", "",
     "round down a global batch that does not divide evenly"},
    {"Batches", "--train-iters", Takes::kValue, "", "N", "number of steps (or give --train-samples)"},
    {"Batches", "--train-samples", Takes::kValue, "", "N", "number of samples (or give --train-iters)"},

    {"Optimizer", "--optimizer", Takes::kValue, "adam", "NAME", "adam (AdamW) or sgd"},
    {"Optimizer", "--lr", Takes::kValue, "", "X", "learning rate after the warm-up"},
    {"Optimizer", "--min-lr", Takes::kValue, "0", "X", "learning rate at the end"},
    {"Optimizer", "--lr-decay-style", Takes::kValue, "linear", "KIND",
     "constant, linear, cosine, inverse-square-root or WSD"},
    {"Optimizer", "--lr-decay-iters", Takes::kValue, "", "N",
     "steps until the learning rate is --min-lr (default: all)"},
    {"Optimizer", "--lr-decay-samples", Takes::kValue, "", "N",
     "with --train-samples: samples until the learning rate is --min-lr"},
    {"Optimizer", "--lr-warmup-iters", Takes::kValue, "0", "N", "steps of a linear warm-up"},
    {"Optimizer", "--lr-warmup-samples", Takes::kValue, "0", "N", "with --train-samples: samples of the warm-up"},
    {"Optimizer", "--lr-warmup-fraction", Takes::kValue, "", "X", "length of the warm-up as a share of the decay"},
    {"Optimizer", "--lr-warmup-init", Takes::kValue, "0", "X", "learning rate at the start of the warm-up"},
    {"Optimizer", "--lr-wsd-decay-style", Takes::kValue, "exponential", "KIND",
     "WSD: how the rate falls: linear, cosine, exponential or minus_sqrt"},
    {"Optimizer", "--lr-wsd-decay-iters", Takes::kValue, "", "N", "WSD: number of last steps in which the rate falls"},
    {"Optimizer", "--lr-wsd-decay-samples", Takes::kValue, "", "N",
     "with --train-samples: number of last samples in which the rate falls"},
    {"Optimizer", "--weight-decay", Takes::kValue, "0.01", "X", "weight decay of matrices; biases and norms have none"},
    {"Optimizer", "--start-weight-decay", Takes::kValue, "", "X",
     "weight decay of the first step, with --weight-decay-incr-style"},
    {"Optimizer", "--end-weight-decay", Takes::kValue, "", "X",
     "weight decay of the last step, with --weight-decay-incr-style"},
    {"Optimizer", "--weight-decay-incr-style", Takes::kValue, "constant", "KIND",
     "change of the weight decay: constant, linear or cosine"},
    {"Optimizer", "--clip-grad", Takes::kValue, "1", "X", "clip gradients to this global norm; 0: off"},
    {"Optimizer", "--adam-beta1", Takes::kValue, "0.9", "X", "Adam's beta1: decay of the mean of gradients"},
    {"Optimizer", "--adam-beta2", Takes::kValue, "0.999", "X", "Adam's beta2: decay of the mean of squared gradients"},
    {"Optimizer", "--adam-eps", Takes::kValue, "1e-8", "X", "Adam's epsilon"},
    {"Optimizer", "--sgd-momentum", Takes::kValue, "0.9", "X", "SGD's momentum"},
    {"Optimizer", "--use-distributed-optimizer", Takes::kNothing, "", "",
     "shard the optimizer state over the replicas (ZeRO-1)"},
    {"Optimizer", "--overlap-grad-reduce", Takes::kNothing, "", "", "average gradients while backward runs"},

    {"Ranks", "--tensor-model-parallel-size", Takes::kValue, "1", "N", "ranks that each layer is sharded over"},
    {"Ranks", "--sequence-parallel", Takes::kNothing, "", "",
     "shard norms and dropout over these ranks too, by tokens"},
    {"Ranks", "--pipeline-model-parallel-size", Takes::kValue, "1", "N",
     "pipeline stages: ranks that the layers are divided among"},
    {"Ranks", "--num-virtual-stages-per-pipeline-rank", Takes::kValue, "", "N",
     "virtual stages per pipeline rank (interleaved)"},
    {"Ranks", "--num-layers-per-virtual-pipeline-stage", Takes::kValue, "", "N",
     "layers of a virtual stage, instead of --num-virtual-stages-per-pipeline-rank"},
    {"Ranks", "--microbatch-group-size-per-virtual-pipeline-stage", Takes::kValue, "", "N",
     "interleaved: microbatches in a row of one virtual stage"},
    {"Ranks", "--pipeline-schedule", Takes::kValue, "", "NAME",
     "fill-drain, 1f1b, interleaved, zb-h1 or zb-v (default: 1f1b; interleaved with several stages per rank)"},
    {"Ranks", "--decoder-first-pipeline-num-layers", Takes::kValue, "", "N", "layers of the first stage"},
    {"Ranks", "--decoder-last-pipeline-num-layers", Takes::kValue, "", "N", "layers of the last stage"},
    {"Ranks", "--no-scatter-gather-tensors-in-pipeline", Takes::kNothing, "", "",
     "between hosts, each tensor rank sends the whole activation, not its part"},
    {"Ranks", "--context-parallel-size", Takes::kValue, "1", "N",
     "ranks that each sequence is sharded over (ring attention)"},
    {"Ranks", "--use-tp-pp-dp-mapping", Takes::kNothing, "", "",
     "number the ranks in the order tensor, pipeline, data"},
    {"Ranks", "--distributed-backend", Takes::kValue, "tutti", "NAME", "communication backend: tutti, gloo or mpi"},
    {"Ranks", "--distributed-timeout-minutes", Takes::kValue, "10", "X", "longest wait for another rank"},
    {"Ranks", "--recompute-granularity", Takes::kValue, "", "KIND",
     "full: keep only the inputs of layers, and recompute the layers in backward"},
    {"Ranks", "--recompute-method", Takes::kValue, "", "KIND",
     "uniform (recompute runs of layers) or block (recompute the first layers of a stage)"},
    {"Ranks", "--recompute-num-layers", Takes::kValue, "", "N", "layers of a run or of the block (1)"},

    {"Evaluation", "--eval-iters", Takes::kValue, "100", "N", "batches per evaluation; 0: no evaluation"},
    {"Evaluation", "--eval-interval", Takes::kValue, "", "N", "evaluate every N steps (default: only at the end)"},
    {"Evaluation", "--skip-train", Takes::kNothing, "", "", "evaluate without training"},

    {"Checkpoints", "--save", Takes::kValue, "", "DIR",
     "save checkpoints to this folder; any grid of ranks can resume from them"},
    {"Checkpoints", "--save-interval", Takes::kValue, "0", "N", "save every N steps; 0: only at the end"},
    {"Checkpoints", "--save-retain-interval", Takes::kValue, "0", "N",
     "with --keep: never delete checkpoints whose step is a multiple of N"},
    {"Checkpoints", "--keep", Takes::kValue, "0", "N", "keep at most N checkpoints; 0: keep all"},
    {"Checkpoints", "--async-save", Takes::kNothing, "", "", "continue training while a copy is written"},
    {"Checkpoints", "--save-dir-per-node", Takes::kNothing, "", "", "--save is a different folder on each node"},
    {"Checkpoints", "--memory-copy-interval", Takes::kValue, "0", "N",
     "copy the state every N steps to memory that tutti run keeps, to resume from after a restart; 0: never"},
    {"Checkpoints", "--load", Takes::kValue, "", "DIR", "resume from the newest checkpoint in this folder"},
    {"Checkpoints", "--ckpt-step", Takes::kValue, "", "N", "with --load: resume from the checkpoint of this step"},
    {"Checkpoints", "--exit-on-missing-checkpoint", Takes::kNothing, "", "",
     "exit if --load has no checkpoint, instead of starting from step 0"},
    {"Checkpoints", "--finetune", Takes::kNothing, "", "", "load only the weights from --load, and start from step 0"},
    {"Checkpoints", "--no-load-optim", Takes::kNothing, "", "", "do not load the optimizer state"},
    {"Checkpoints", "--no-save-optim", Takes::kNothing, "", "", "do not save the optimizer state"},

    {"Output", "--log-interval", Takes::kValue, "100", "N", "print a line every N steps"},
    {"Output", "--log-throughput", Takes::kNothing, "", "",
     "print TFLOP/s of a rank, tokens/s, and the share of what the machine's matrix products reach"},
    {"Output", "--log-params-norm", Takes::kNothing, "", "", "print the norm of the weights"},
    {"Output", "--log-num-zeros-in-grad", Takes::kNothing, "", "", "print the number of zeros in the gradient"},
    {"Output", "--timing-log-level", Takes::kValue, "0", "N", "detail of timings: 0, 1 or 2"},
    {"Output", "--timing-log-option", Takes::kValue, "minmax", "KIND", "timings of which ranks: max, minmax or all"},
    {"Output", "--tensorboard-dir", Takes::kValue, "", "DIR", "write event files for TensorBoard to this folder"},
    {"Output", "--tensorboard-log-interval", Takes::kValue, "1", "N", "write to TensorBoard every N steps"},
    {"Output", "--log-timers-to-tensorboard", Takes::kNothing, "", "", "write timings to TensorBoard too"},
    {"Output", "--trace", Takes::kValue, "", "FILE",
     "write a Chrome trace of all ranks (.json), or a folder with one trace per rank"},
    {"Output", "--exit-interval", Takes::kValue, "0", "N", "exit after a step that is a multiple of N; 0: never"},
    {"Output", "--exit-duration-in-mins", Takes::kValue, "0", "X", "exit after X minutes; 0: never"},
    {"Output", "--json", Takes::kNothing, "", "", "end with one line of JSON on standard output"},

    {"Text", "--generate", Takes::kValue, "", "PROMPT",
     "continue this text after training (with --skip-train at once)"},
    {"Text", "--generate-tokens", Takes::kValue, "64", "N", "tokens to generate"},
    {"Text", "--temperature", Takes::kValue, "1", "X", "sampling temperature; 0: always the likeliest token"},
    {"Text", "--top-k", Takes::kValue, "0", "N", "sample among the N likeliest tokens; 0: all"},
};

}  // namespace

void PretrainGptCommandLine::declare(CLI::App& app) {
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
  for (const auto* foreign : {&rejected_pretraining_options(), &ignored_pretraining_options()})  // not in the help
    for (const auto& option : *foreign) {
      auto*& made = foreign_[option.name];
      if (option.takes_value) {
        made = app.add_option(option.name, unused_, "")
                   ->group("")
                   ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
                   ->expected(1, 1 << 20);
      } else {
        made = app.add_flag(std::string(option.name))->group("");
      }
    }
}

Status PretrainGptCommandLine::reject() const {
  static constexpr ForeignOption kNccl = {"--distributed-backend nccl", true, "pretrain_gpt computes on CPUs",
                                          "tutti, gloo or mpi"};
  std::vector<const ForeignOption*> given;
  for (const auto& option : rejected_pretraining_options())
    if (foreign_.at(option.name)->count() > 0) given.push_back(&option);
  if (texts_.value("--distributed-backend") == "nccl") given.push_back(&kNccl);
  if (given.empty()) return {};
  if (given.size() == 1)
    return usage(fmt::format("{} is not supported: {}", given[0]->name, given[0]->why), given[0]->instead);
  std::string all = fmt::format("{} options are not supported:", given.size());
  for (const auto* option : given)
    all += fmt::format("\n  {}: {} (hint: {})", option->name, option->why, option->instead);
  return usage(all);
}

Error PretrainGptCommandLine::with_rejected(const Error& mistake) const {
  const Status rejected = reject();
  if (rejected.ok()) return mistake;
  const auto text = [](const Error& error) {
    return error.detail + (error.hint.empty() ? "" : " (hint: " + error.hint + ")");
  };
  return usage(text(mistake) + "\n" + text(rejected.error()));
}

Result<gpt::Options> PretrainGptCommandLine::interpret(const Tokenizer* tokenizer) const {
  TUTTI_TRY(reject());
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
  TUTTI_TRY(reject());
  const std::string &type = texts_.value("--tokenizer-type"), &vocabulary = texts_.value("--vocab-file"),
                    &merges = texts_.value("--merge-file"), &model = texts_.value("--tokenizer-model"),
                    &given_pattern = texts_.value("--tiktoken-pattern");
  const bool has_pair = !vocabulary.empty() || !merges.empty(), has_model = !model.empty();
  TUTTI_TRY(check_pairs(texts_));
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
  if (kind == 3 && model.empty())
    return usage("--tokenizer-model is missing: a .tiktoken file, or the .json file of Megatron-LM");
  BpeVocabulary learned = kind == 2 ? TUTTI_TRY(read_vocabulary(vocabulary, merges)) : TUTTI_TRY(read_tiktoken(model));
  const std::string_view pattern = TUTTI_TRY(pretoken_pattern(given_pattern.empty() ? learned.pattern : given_pattern));
  return bpe_tokenizer(std::move(learned), pattern);
}

Result<std::string> PretrainGptCommandLine::backend() const {
  TUTTI_TRY(reject());
  const std::string& given = texts_.value("--distributed-backend");
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
  std::vector<std::string> sentences = options_without_effect(texts_, given);
  for (const auto& option : ignored_pretraining_options())
    if (foreign_.at(option.name)->count() > 0)
      sentences.push_back(fmt::format("{} has no effect: {}", option.name, option.why));
  return sentences;
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
