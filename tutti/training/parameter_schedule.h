#pragma once
// The learning rate and the weight decay of a step, as Megatron-LM sets them
// (megatron/core/optimizer_param_scheduler.py): a linear warm-up, then a decay to the least rate; weight decay grows
// from one value to another. Counted in samples, so that a step means the same whatever the batch. Pure arithmetic;
// mistakes throw Exception.
#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

enum class DecayStyle { kConstant, kLinear, kCosine, kInverseSquareRoot, kWarmUpStableDecay };
// Of the decay at the end of kWarmUpStableDecay ("WSD", Hu et al. 2024, arXiv:2404.06395).
enum class AnnealStyle { kLinear, kCosine, kExponential, kMinusSquareRoot };
enum class IncreaseStyle { kConstant, kLinear, kCosine };

// As options spell them: "constant", "linear", "cosine", "inverse-square-root", "WSD"; "linear", "cosine",
// "exponential", "minus_sqrt"; "constant", "linear", "cosine". None for another word.
std::optional<DecayStyle> decay_style(std::string_view name);
std::optional<AnnealStyle> anneal_style(std::string_view name);
std::optional<IncreaseStyle> increase_style(std::string_view name);

struct LearningRateOptions {
  double most = 0, least = 0;  // the rate after the warm-up, and at the end
  double at_start = 0;         // where the warm-up begins
  std::int64_t warm_up_samples = 0;
  std::int64_t decay_samples = 1;  // until the least rate is reached, warm-up included
  DecayStyle style = DecayStyle::kLinear;
  std::int64_t anneal_samples = 0;  // kWarmUpStableDecay: the last so many of decay_samples
  AnnealStyle anneal = AnnealStyle::kExponential;
};

class LearningRate {
 public:
  explicit LearningRate(const LearningRateOptions& options);
  double at(std::int64_t samples) const;

 private:
  LearningRateOptions options_;
};

struct WeightDecayOptions {
  double start = 0.01, end = 0.01;
  std::int64_t samples = 1;  // until `end` is reached
  IncreaseStyle style = IncreaseStyle::kConstant;
};

class WeightDecay {
 public:
  explicit WeightDecay(const WeightDecayOptions& options);
  double at(std::int64_t samples) const;

 private:
  WeightDecayOptions options_;
};

}  // namespace tutti
