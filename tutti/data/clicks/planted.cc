// Every random number is a hash of (seed, what it is for, which sample or row): nothing is stored and nothing has an
// order. Effects of rows are uniform with variance 1, which costs a multiplication instead of a logarithm and is as
// good a secret as any.
//
// Row r of a table of n rows comes with probability log((r+2)/(r+1)) / log(n+1), close to 1/(r+1): its inverse is one
// exponential. Log(count + 1) of a dense feature is the mean of three uniforms, a bell, on a range of its own.
//
// calibrate() takes a fixed set of samples, measures the three parts of the logit and scales them to what was asked
// for, then finds the bias that gives the click rate. It uses samples from the far end of the numbering, so it does not
// depend on the dataset's size.
#include "tutti/data/clicks/planted.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "tutti/data/clicks/auc.h"

namespace tutti {
namespace {

constexpr std::array<std::int64_t, 26> kCriteoRows = {1460,  583,  10131227, 2202608, 305, 24,     12517,   633,   3,
                                                      93145, 5683, 8351593,  3194,    27,  14992,  5461306, 10,    5652,
                                                      2173,  4,    7046547,  18,      15,  286181, 105,     142572};
constexpr double kMissing = 0.3;
constexpr std::uint64_t kCalibrationFirst = std::uint64_t(1) << 63;
constexpr int kCalibrationSamples = 1 << 14;

enum Purpose : std::uint64_t { kCount = 1, kRow, kClick, kDenseWeight, kRowEffect, kHiddenFactor };

// splitmix64's finalizer: every bit of the result depends on every bit of the input.
std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}
std::uint64_t hash(std::uint64_t seed, Purpose purpose, std::uint64_t which, std::uint64_t item) {
  constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15u;
  return mix(mix(mix(seed * kGolden + purpose) + which * kGolden) + (item + 1) * kGolden);
}
double uniform(std::uint64_t bits) { return double(bits >> 11) * 0x1p-53; }                      // in [0, 1)
double unit_variance(std::uint64_t bits) { return (uniform(bits) - 0.5) * 3.4641016151377544; }  // sqrt(12)
double log_range(int feature) { return 3 + feature % 5; }                                        // of log(count+1)
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

double deviation(const std::vector<double>& values) {
  double sum = 0, squares = 0;
  for (const double value : values) sum += value, squares += value * value;
  const double mean = sum / double(values.size());
  return std::sqrt(std::max(0.0, squares / double(values.size()) - mean * mean));
}

}  // namespace

std::vector<std::int64_t> criteo_rows(std::int64_t most) {
  std::vector<std::int64_t> rows;
  for (const std::int64_t count : kCriteoRows) rows.push_back(std::min(count, most));
  return rows;
}

Result<PlantedClicks> PlantedClicks::create(PlantedClickOptions options) {
  for (std::size_t table = 0; table < options.rows.size(); ++table) {
    if (options.rows[table] < 1 || options.rows[table] > std::int64_t(1) << 31)
      return invalid_argument(
          fmt::format("table {} of {} rows: from 1 to 2^31 can be made", table, options.rows[table]));
  }
  if (options.dense_features < 0)
    return invalid_argument(fmt::format("{} dense features cannot be made", options.dense_features));
  if (options.pairs < 0 || options.pairs > int(options.rows.size() / 2))
    return invalid_argument(fmt::format("{} pairs among {} tables: at most {}", options.pairs, options.rows.size(),
                                        options.rows.size() / 2));
  if (!(options.click_rate > 0 && options.click_rate < 1))
    return invalid_argument(fmt::format("a click rate of {}: it must lie between 0 and 1", options.click_rate));
  for (const double strength : {options.dense_strength, options.table_strength, options.pair_strength}) {
    if (!(strength >= 0 && strength <= 100))
      return invalid_argument(fmt::format("a strength of {}: it must lie between 0 and 100", strength));
  }
  return PlantedClicks(std::move(options));
}

PlantedClicks::PlantedClicks(PlantedClickOptions options) : options_(std::move(options)) {
  for (const std::int64_t rows : options_.rows) log_rows_.push_back(std::log(double(rows) + 1));
  for (int feature = 0; feature < options_.dense_features; ++feature)
    dense_weight_.push_back(unit_variance(hash(options_.seed, kDenseWeight, 0, std::uint64_t(feature))) /
                            log_range(feature));
  calibrate();
}

void PlantedClicks::counts(std::uint64_t sample, std::span<std::int32_t> into) const {
  constexpr std::uint64_t kPart = (std::uint64_t(1) << 21) - 1;
  for (int feature = 0; feature < options_.dense_features; ++feature) {
    const std::uint64_t bits = hash(options_.seed, kCount, sample, 2 * std::uint64_t(feature));
    const double bell = double((bits & kPart) + (bits >> 21 & kPart) + (bits >> 42 & kPart)) / (3.0 * kPart);
    const bool missing = uniform(hash(options_.seed, kCount, sample, 2 * std::uint64_t(feature) + 1)) < kMissing;
    into[std::size_t(feature)] = missing ? 0 : std::int32_t(std::exp(bell * log_range(feature)) - 1);
  }
}

std::int64_t PlantedClicks::row(std::uint64_t sample, int table) const {
  const double u = uniform(hash(options_.seed, kRow, sample, std::uint64_t(table)));
  const auto place = std::size_t(table);
  return std::min(std::int64_t(std::exp(u * log_rows_[place])) - 1, options_.rows[place] - 1);
}

PlantedClicks::Parts PlantedClicks::parts(std::uint64_t sample) const {
  Parts parts{0, 0, 0};
  thread_local std::vector<std::int32_t> counts_of_sample;
  thread_local std::vector<std::int64_t> rows_of_sample;
  counts_of_sample.resize(std::size_t(options_.dense_features));
  counts(sample, counts_of_sample);
  for (std::size_t feature = 0; feature < counts_of_sample.size(); ++feature)
    parts.dense += dense_weight_[feature] * std::log(float(counts_of_sample[feature]) + 1);

  const int tables = int(options_.rows.size());
  rows_of_sample.resize(std::size_t(tables));
  for (int table = 0; table < tables; ++table) {
    const std::int64_t row_here = rows_of_sample[std::size_t(table)] = row(sample, table);
    parts.tables += unit_variance(hash(options_.seed, kRowEffect, std::uint64_t(table), std::uint64_t(row_here)));
  }
  for (int pair = 0; pair < options_.pairs; ++pair) {
    double product = 1;
    for (const int table : {pair, pair + tables / 2})
      product *= unit_variance(
          hash(options_.seed, kHiddenFactor, std::uint64_t(table), std::uint64_t(rows_of_sample[std::size_t(table)])));
    parts.pairs += product;
  }
  return parts;
}

PlantedClicks::Truth PlantedClicks::truth(std::uint64_t sample) const {
  const Parts raw = parts(sample);
  const double dense = raw.dense * dense_scale_;
  const double logit = bias_ + dense + raw.tables * table_scale_ + raw.pairs * pair_scale_;
  return {.logit = logit, .dense = dense, .clicked = uniform(hash(options_.seed, kClick, sample, 0)) < sigmoid(logit)};
}

void PlantedClicks::calibrate() {
  std::vector<double> dense, tables, pairs, logits;
  for (int i = 0; i < kCalibrationSamples; ++i) {
    const Parts raw = parts(kCalibrationFirst + std::uint64_t(i));
    dense.push_back(raw.dense);
    tables.push_back(raw.tables);
    pairs.push_back(raw.pairs);
  }
  const auto scale = [](const std::vector<double>& values, double wanted) {
    const double found = deviation(values);
    return found > 0 ? wanted / found : 0;
  };
  dense_scale_ = scale(dense, options_.dense_strength);
  table_scale_ = scale(tables, options_.table_strength);
  pair_scale_ = scale(pairs, options_.pair_strength);
  for (std::size_t i = 0; i < dense.size(); ++i)
    logits.push_back(dense[i] * dense_scale_ + tables[i] * table_scale_ + pairs[i] * pair_scale_);
  double low = -1000, high = 1000;
  for (int step = 0; step < 60; ++step) {
    bias_ = (low + high) / 2;
    double clicks = 0;
    for (const double logit : logits) clicks += sigmoid(bias_ + logit);
    (clicks > options_.click_rate * double(logits.size()) ? high : low) = bias_;
  }
}

PlantedBest best_on(const PlantedClicks& clicks, std::uint64_t first, std::uint64_t samples) {
  std::vector<float> score(samples), dense(samples), probability(samples), drawn(samples);
  PlantedBest best;
  for (std::uint64_t i = 0; i < samples; ++i) {
    const PlantedClicks::Truth truth = clicks.truth(first + i);
    const double p = sigmoid(truth.logit);
    score[i] = float(truth.logit);
    dense[i] = float(truth.dense);
    probability[i] = float(p);
    drawn[i] = truth.clicked ? 1 : 0;
    best.log_loss -= p * std::log(p) + (1 - p) * std::log1p(-p);
    best.click_rate += drawn[i];
  }
  best.log_loss /= double(samples);
  best.click_rate /= double(samples);
  best.auc = expected_auc(score, probability);
  best.auc_drawn = expected_auc(score, drawn);
  best.dense_auc = expected_auc(dense, probability);
  best.dense_auc_drawn = expected_auc(dense, drawn);
  return best;
}

namespace {

class PlantedSource : public ClickSource {
 public:
  PlantedSource(PlantedClicks clicks, std::uint64_t first, BatchCut cut)
      : clicks_(std::move(clicks)),
        shape_{.dense_features = clicks_.options().dense_features, .rows = clicks_.options().rows},
        first_(first),
        cut_(cut),
        counts_(std::size_t(shape_.dense_features)) {}

  const ClickShape& shape() const override { return shape_; }
  std::int64_t batches() const override { return cut_.batches(); }
  std::int64_t samples(std::int64_t batch) const override { return cut_.size(batch); }

  Status read(std::int64_t batch, const BatchPart& part, ClickBatch& into) override {
    TUTTI_TRY(begin_read(*this, batch, part, into));
    const std::uint64_t begin = first_ + std::uint64_t(cut_.begin(batch));
    float* dense = into.dense.data();
    for (std::int64_t i = part.begin; i < part.end; ++i) {
      const std::uint64_t sample = begin + std::uint64_t(i);
      clicks_.counts(sample, counts_);
      for (const std::int32_t count : counts_) *dense++ = std::log(float(count) + 1);
      into.targets[std::size_t(i - part.begin)] = clicks_.truth(sample).clicked ? 1 : 0;
    }
    for (std::size_t t = 0; t < part.tables.size(); ++t) {
      Lookups& lookups = into.lookups[t];
      for (std::int64_t i = 0; i < into.samples; ++i) {
        lookups.indices.push_back(clicks_.row(begin + std::uint64_t(i), part.tables[t]));
        lookups.offsets.push_back(i + 1);
      }
    }
    return {};
  }

 private:
  PlantedClicks clicks_;
  ClickShape shape_;
  std::uint64_t first_;
  BatchCut cut_;
  std::vector<std::int32_t> counts_;
};

}  // namespace

Result<std::unique_ptr<ClickSource>> make_planted_source(PlantedClicks clicks, std::uint64_t first,
                                                         std::int64_t samples, std::int64_t batch_size) {
  if (samples < 1 || batch_size < 1)
    return invalid_argument(fmt::format("{} samples in batches of {}: both must be at least 1", samples, batch_size));
  return std::unique_ptr<ClickSource>(std::make_unique<PlantedSource>(
      std::move(clicks), first, BatchCut{.samples = samples, .batch_size = batch_size}));
}

}  // namespace tutti
