// Options that are right and do nothing, because another one decides that what they set is not there. A script for
// Megatron-LM often carries some, so they are no mistake, and are told rather than refused.
#include <fmt/format.h>

#include "apps/options/pretrain_gpt_options.h"
#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

struct Effect {
  const char* option;
  const char* none;  // where it has none: "without --generate"
  bool (*has_some)(const PretrainGptTexts& texts);
};

bool is(const PretrainGptTexts& texts, const char* option, const char* value) { return texts.value(option) == value; }
double number(const PretrainGptTexts& texts, const char* option) {
  return parse_double(texts.value(option)).value_or(0);
}

using Texts = const PretrainGptTexts&;
bool generates(Texts texts) { return texts.has("--generate"); }
bool draws(Texts texts) { return generates(texts) && number(texts, "--temperature") > 0; }
bool is_adam(Texts texts) { return is(texts, "--optimizer", "adam"); }
bool is_sgd(Texts texts) { return is(texts, "--optimizer", "sgd"); }
bool turns(Texts texts) { return is(texts, "--position-embedding-type", "rope"); }
bool falls_at_the_end(Texts texts) { return is(texts, "--lr-decay-style", "WSD"); }
bool has_least_rate(Texts texts) { return !is(texts, "--lr-decay-style", "constant"); }
bool has_decay(Texts texts) { return has_least_rate(texts) || texts.has("--lr-warmup-fraction"); }
bool warms_up(Texts texts) {
  return number(texts, "--lr-warmup-iters") > 0 || number(texts, "--lr-warmup-samples") > 0 ||
         number(texts, "--lr-warmup-fraction") > 0;
}
bool has_plain_decay(Texts texts) { return is(texts, "--weight-decay-incr-style", "constant"); }
bool evaluates(Texts texts) { return number(texts, "--eval-iters") > 0; }
bool has_timers(Texts texts) { return number(texts, "--timing-log-level") > 0; }
bool has_events(Texts texts) { return texts.has("--tensorboard-dir"); }
bool saves(Texts texts) { return texts.has("--save"); }
bool reads_files(Texts texts) { return !texts.flag("--mock-data"); }
bool has_tensor_ranks(Texts texts) { return number(texts, "--tensor-model-parallel-size") > 1; }
bool sends_alike(Texts texts) {
  return has_tensor_ranks(texts) && number(texts, "--pipeline-model-parallel-size") > 1 &&
         !texts.flag("--sequence-parallel");
}
bool cuts_by_pattern(Texts texts) {
  return is(texts, "--tokenizer-type", "TikTokenizer") || texts.has("--tokenizer-model");
}
bool recomputes_layers(Texts texts) { return !is(texts, "--recompute-granularity", "selective"); }

constexpr const char* kNoRope = "without --position-embedding-type rope";
constexpr const char* kNoWsd = "without --lr-decay-style WSD";
constexpr const char* kNoTimers = "without --timing-log-level 1 or 2";
constexpr const char* kConstant = "with --lr-decay-style constant";

constexpr Effect kEffects[] = {
    {"--rotary-base", kNoRope, turns},
    {"--rotary-percent", kNoRope, turns},
    {"--adam-beta1", "without --optimizer adam", is_adam},
    {"--adam-beta2", "without --optimizer adam", is_adam},
    {"--adam-eps", "without --optimizer adam", is_adam},
    {"--sgd-momentum", "without --optimizer sgd", is_sgd},
    {"--min-lr", kConstant, has_least_rate},
    {"--lr-decay-iters", kConstant, has_decay},
    {"--lr-decay-samples", kConstant, has_decay},
    {"--lr-wsd-decay-style", kNoWsd, falls_at_the_end},
    {"--lr-wsd-decay-iters", kNoWsd, falls_at_the_end},
    {"--lr-wsd-decay-samples", kNoWsd, falls_at_the_end},
    {"--lr-warmup-init", "without a warm-up", warms_up},
    {"--weight-decay",
     "with --weight-decay-incr-style linear or cosine: it goes from --start-weight-decay to --end-weight-decay",
     has_plain_decay},
    {"--split", "with --mock-data", reads_files},
    {"--tiktoken-pattern", "without --tokenizer-type TikTokenizer", cuts_by_pattern},
    {"--sequence-parallel", "without --tensor-model-parallel-size 2 or more", has_tensor_ranks},
    {"--no-scatter-gather-tensors-in-pipeline",
     "without --tensor-model-parallel-size and --pipeline-model-parallel-size of 2 or more, or with "
     "--sequence-parallel",
     sends_alike},
    {"--recompute-granularity", "with selective: attention scores are always recomputed in backward",
     recomputes_layers},
    {"--eval-interval", "with --eval-iters 0", evaluates},
    {"--no-save-optim", "without --save", saves},
    {"--timing-log-option", kNoTimers, has_timers},
    {"--tensorboard-log-interval", "without --tensorboard-dir", has_events},
    {"--generate-tokens", "without --generate", generates},
    {"--temperature", "without --generate", generates},
    {"--top-k", "without --generate, or with --temperature 0", draws},
};

}  // namespace

std::vector<std::string> options_without_effect(const PretrainGptTexts& texts, const std::set<std::string>& given) {
  std::vector<std::string> told;
  for (const Effect& effect : kEffects)
    if (given.contains(effect.option) && !effect.has_some(texts))
      told.push_back(fmt::format("{} has no effect {}", effect.option, effect.none));
  return told;
}

}  // namespace tutti::cli
