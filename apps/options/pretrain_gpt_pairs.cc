// Options of pretrain_gpt that exclude each other. tests/parity/gpt_pairs_test.cc tries every pair; what depends on the
// grid of ranks as well is checked by gpt::for_world().
#include "apps/options/pretrain_gpt_options.h"

namespace tutti::cli {
namespace {

constexpr std::string_view kOneActivation = "drop one of the two: an MLP has one activation";
constexpr std::string_view kOnePrecision = "drop one of the two: a model is computed in one precision";
constexpr std::string_view kFixedScale =
    "drop one of the two: --loss-scale fixes the scale, which the other option adapts";
constexpr std::string_view kOneSchedule = "drop one of the two: --step-batch-size-schedule has all batch sizes";
constexpr std::string_view kGrowingBatches =
    "give --train-samples N: steps whose batches grow are not a number of samples";
constexpr std::string_view kInSteps = "give the length in steps: --train-iters counts steps, the other samples";
constexpr std::string_view kInSamples = "give the length in samples: --train-samples counts samples, the other steps";
constexpr std::string_view kOneWarmUp = "drop one of the two: both set the length of the warm-up";
constexpr std::string_view kOneSource = "drop one of the two: training has one source of data";
constexpr std::string_view kOneTokenizer = "drop one of the two: each is a tokenizer";

constexpr ExcludedPair kPretrainGptPairs[] = {
    {"--swiglu", "--squared-relu", kOneActivation},
    {"--bf16", "--fp16", kOnePrecision},
    {"--bf16", "--fp64", kOnePrecision},
    {"--fp16", "--fp64", kOnePrecision},
    {"--initial-loss-scale", "--loss-scale", kFixedScale},
    {"--min-loss-scale", "--loss-scale", kFixedScale},
    {"--loss-scale-window", "--loss-scale", kFixedScale},
    {"--hysteresis", "--loss-scale", kFixedScale},
    {"--num-virtual-stages-per-pipeline-rank", "--num-layers-per-virtual-pipeline-stage",
     "drop one of the two: both set the number of stages of a rank"},
    {"--global-batch-size", "--step-batch-size-schedule", kOneSchedule},
    {"--rampup-batch-size", "--step-batch-size-schedule", kOneSchedule},
    {"--train-iters", "--train-samples", "drop one of the two: both set the length of the training"},
    {"--train-iters", "--rampup-batch-size", kGrowingBatches},
    {"--train-iters", "--step-batch-size-schedule", kGrowingBatches},
    {"--train-iters", "--lr-decay-samples", kInSteps},
    {"--train-iters", "--lr-warmup-samples", kInSteps},
    {"--train-iters", "--lr-wsd-decay-samples", kInSteps},
    {"--train-samples", "--lr-decay-iters", kInSamples},
    {"--train-samples", "--lr-warmup-iters", kInSamples},
    {"--train-samples", "--lr-wsd-decay-iters", kInSamples},
    {"--lr-warmup-fraction", "--lr-warmup-iters", kOneWarmUp},
    {"--lr-warmup-fraction", "--lr-warmup-samples", kOneWarmUp},
    {"--data-path", "--mock-data", kOneSource},
    {"--data-path", "--train-data-path", kOneSource},
    {"--data-path", "--valid-data-path", kOneSource},
    {"--data-path", "--test-data-path", kOneSource},
    {"--train-data-path", "--mock-data", kOneSource},
    {"--valid-data-path", "--mock-data", kOneSource},
    {"--test-data-path", "--mock-data", kOneSource},
    {"--vocab-file", "--tokenizer-model", kOneTokenizer},
    {"--merge-file", "--tokenizer-model", kOneTokenizer},
};

}  // namespace

std::span<const ExcludedPair> pretrain_gpt_pairs() { return kPretrainGptPairs; }

// A length of 0 is that of an option that is not given.
Status check_pairs(const PretrainGptTexts& texts) {
  return tutti::check_pairs(pretrain_gpt_pairs(), [&](std::string_view option) {
    const std::string name(option);
    if (const auto flag = texts.flags.find(name); flag != texts.flags.end()) return flag->second;
    if (const auto words = texts.words.find(name); words != texts.words.end()) return !words->second.empty();
    return texts.has(name) && texts.value(name) != "0";
  });
}

}  // namespace tutti::cli
