#include "tutti/data/tokens/planted_text.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>

#include "tutti/base/error.h"
#include "tutti/base/random.h"

namespace tutti {
namespace {

constexpr int kLetters = PlantedText::kLetters, kPairs = kLetters * kLetters;

// In nats.
double entropy_of(const std::vector<double>& shares) {
  double sum = 0;
  for (const double share : shares)
    if (share > 0) sum -= share * std::log(share);
  return sum;
}

// The first place whose sum of shares passes `draw`, in [0, 1).
int place_of(const std::vector<double>& shares, double draw) {
  int place = 0;
  for (; place + 1 < int(shares.size()); ++place) {
    draw -= shares[std::size_t(place)];
    if (draw < 0) break;
  }
  return place;
}

NumpyRandom random_at(std::uint64_t seed, std::int64_t document) {
  return NumpyRandom(std::uint32_t(seed_at(seed, {.step = document + 1})));
}

}  // namespace

PlantedText::PlantedText(const PlantedTextOptions& options) : options_(options) {
  TUTTI_REQUIRE(options.branches >= 1 && options.branches <= kLetters, "planted text: ", options.branches,
                " letters that may follow a pair, expected 1 to ", kLetters);
  TUTTI_REQUIRE(options.length >= 2, "planted text: documents of ", options.length, " letters, expected 2 or more");
  for (int i = 0; i < options.branches; ++i) shares_.push_back(std::ldexp(1.0, -i));
  const double sum = std::accumulate(shares_.begin(), shares_.end(), 0.0);
  for (double& share : shares_) share /= sum;
  NumpyRandom random(std::uint32_t(seed_at(options.seed, {.layer = 1})));
  followers_.resize(kPairs);
  for (auto& order : followers_) {
    std::iota(order.begin(), order.end(), std::uint8_t(0));
    random.shuffle(std::span<std::uint8_t>(order));
  }
  settle();
}

// How often each pair stands in a long text: where the chain of pairs settles, from all pairs alike. (Half of each step
// stays where it was, so that a chain that goes round in a circle settles, too.)
void PlantedText::settle() {
  settled_.assign(kPairs, 1.0 / kPairs);
  std::vector<double> next(kPairs);
  for (int step = 0; step < 4000; ++step) {
    for (int pair = 0; pair < kPairs; ++pair) next[std::size_t(pair)] = settled_[std::size_t(pair)] / 2;
    for (int pair = 0; pair < kPairs; ++pair)
      for (std::size_t i = 0; i < shares_.size(); ++i)
        next[std::size_t(pair % kLetters * kLetters + followers_[std::size_t(pair)][i])] +=
            settled_[std::size_t(pair)] * shares_[i] / 2;
    settled_.swap(next);
  }
  entropy_ = entropy_of(shares_);  // the same after every pair
  std::vector<double> alone(kLetters);
  entropy_after_one_ = 0;
  for (int second = 0; second < kLetters; ++second) {
    std::vector<double> after(kLetters);
    double often = 0;
    for (int first = 0; first < kLetters; ++first) {
      const int pair = first * kLetters + second;
      often += settled_[std::size_t(pair)];
      for (std::size_t i = 0; i < shares_.size(); ++i)
        after[followers_[std::size_t(pair)][i]] += settled_[std::size_t(pair)] * shares_[i];
    }
    alone[std::size_t(second)] = often;
    if (often <= 0) continue;
    for (double& share : after) share /= often;
    entropy_after_one_ += often * entropy_of(after);
  }
  entropy_alone_ = entropy_of(alone);
}

double PlantedText::chance(int first, int second, int next) const {
  const auto& order = followers_[std::size_t(first * kLetters + second)];
  for (std::size_t i = 0; i < shares_.size(); ++i)
    if (order[i] == next) return shares_[i];
  return 0;
}

std::string PlantedText::document(std::int64_t i) const {
  constexpr char kAlphabet[] = "abcdefghijklmnopqrstuvwxyz ";
  NumpyRandom random = random_at(options_.seed, i);
  int pair = place_of(settled_, random.uniform());
  std::string text{kAlphabet[pair / kLetters], kAlphabet[pair % kLetters]};
  while (std::int64_t(text.size()) < options_.length) {
    const int next = followers_[std::size_t(pair)][std::size_t(place_of(shares_, random.uniform()))];
    text += kAlphabet[next];
    pair = pair % kLetters * kLetters + next;
  }
  return text;
}

}  // namespace tutti
