#include "tutti/training/parameter_schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "tutti/base/error.h"

namespace tutti {
namespace {

template <class Style>
struct Named {
  std::string_view name;
  Style style;
};
constexpr Named<DecayStyle> kDecays[] = {{"constant", DecayStyle::kConstant},
                                         {"linear", DecayStyle::kLinear},
                                         {"cosine", DecayStyle::kCosine},
                                         {"inverse-square-root", DecayStyle::kInverseSquareRoot},
                                         {"WSD", DecayStyle::kWarmUpStableDecay}};
constexpr Named<AnnealStyle> kAnneals[] = {{"linear", AnnealStyle::kLinear},
                                           {"cosine", AnnealStyle::kCosine},
                                           {"exponential", AnnealStyle::kExponential},
                                           {"minus_sqrt", AnnealStyle::kMinusSquareRoot}};
constexpr Named<IncreaseStyle> kIncreases[] = {
    {"constant", IncreaseStyle::kConstant}, {"linear", IncreaseStyle::kLinear}, {"cosine", IncreaseStyle::kCosine}};

template <class Style, std::size_t n>
std::optional<Style> find(const Named<Style> (&table)[n], std::string_view name) {
  for (const auto& row : table)
    if (row.name == name) return row.style;
  return {};
}

// From 1 to 0 in half a wave.
double half_wave(double share) { return 0.5 * (std::cos(std::numbers::pi * share) + 1); }

double annealed(AnnealStyle style, double share) {
  switch (style) {
    case AnnealStyle::kLinear:
      return 1 - share;
    case AnnealStyle::kCosine:
      return half_wave(share);
    case AnnealStyle::kExponential:
      return 2 * std::pow(0.5, share) - 1;
    case AnnealStyle::kMinusSquareRoot:
      return 1 - std::sqrt(share);
  }
  return 0;
}

}  // namespace

std::optional<DecayStyle> decay_style(std::string_view name) { return find(kDecays, name); }
std::optional<AnnealStyle> anneal_style(std::string_view name) { return find(kAnneals, name); }
std::optional<IncreaseStyle> increase_style(std::string_view name) { return find(kIncreases, name); }

LearningRate::LearningRate(const LearningRateOptions& options) : options_(options) {
  const auto& o = options_;
  TUTTI_REQUIRE(o.least >= 0 && o.most >= o.least, "learning rate: from ", o.most, " down to ", o.least,
                ", expected 0 or more, and the least not above the most");
  TUTTI_REQUIRE(o.at_start >= 0 && o.at_start <= o.most, "learning rate: the warm-up begins at ", o.at_start,
                ", expected 0 to ", o.most);
  TUTTI_REQUIRE(o.decay_samples > 0 && o.warm_up_samples >= 0 && o.warm_up_samples < o.decay_samples,
                "learning rate: a warm-up of ", o.warm_up_samples, " of ", o.decay_samples,
                " samples, expected less than all of them");
  if (o.style == DecayStyle::kWarmUpStableDecay)
    TUTTI_REQUIRE(o.anneal_samples > 0 && o.anneal_samples <= o.decay_samples, "learning rate: WSD with a decay of ",
                  o.anneal_samples, " samples at the end, expected 1 to ", o.decay_samples);
}

double LearningRate::at(std::int64_t samples) const {
  const auto& o = options_;
  if (o.warm_up_samples > 0 && samples <= o.warm_up_samples)
    return o.at_start + (o.most - o.at_start) * double(samples) / double(o.warm_up_samples);
  if (o.style == DecayStyle::kConstant) return o.most;
  if (samples > o.decay_samples) return o.least;
  const double share = double(samples - o.warm_up_samples) / double(o.decay_samples - o.warm_up_samples);
  double part = 1;  // of the way between the least rate and the most
  switch (o.style) {
    case DecayStyle::kConstant:
      break;
    case DecayStyle::kLinear:
      part = 1 - share;
      break;
    case DecayStyle::kCosine:
      part = half_wave(share);
      break;
    case DecayStyle::kInverseSquareRoot: {
      const double warm_up = double(std::max<std::int64_t>(o.warm_up_samples, 1));
      return std::max(o.least, o.most * std::sqrt(warm_up / double(std::max<std::int64_t>(samples, 1))));
    }
    case DecayStyle::kWarmUpStableDecay: {
      const std::int64_t begin = o.decay_samples - o.anneal_samples;
      if (samples > begin) part = annealed(o.anneal, double(samples - begin) / double(o.anneal_samples));
      break;
    }
  }
  return o.least + part * (o.most - o.least);
}

WeightDecay::WeightDecay(const WeightDecayOptions& options) : options_(options) {
  const auto& o = options_;
  TUTTI_REQUIRE(o.start >= 0 && o.end >= o.start, "weight decay: from ", o.start, " to ", o.end,
                ", expected 0 or more, and not falling");
  TUTTI_REQUIRE(o.style != IncreaseStyle::kConstant || o.start == o.end, "weight decay: constant, but from ", o.start,
                " to ", o.end, ": choose linear or cosine");
  TUTTI_REQUIRE(o.samples > 0, "weight decay: grows over ", o.samples, " samples, expected 1 or more");
}

double WeightDecay::at(std::int64_t samples) const {
  const auto& o = options_;
  if (o.style == IncreaseStyle::kConstant || samples > o.samples) return o.end;
  const double share = double(samples) / double(o.samples);
  return o.start + (o.style == IncreaseStyle::kLinear ? share : half_wave(1 - share)) * (o.end - o.start);
}

}  // namespace tutti
