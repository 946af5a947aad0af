#include "tutti/data/clicks/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

// Sorts a few numbers without a branch that depends on them: the place of each is the number of those before it. For
// bags of some dozens that is three times as fast as std::sort, whose every comparison is a guess.
constexpr std::int64_t kFew = 64;

void sort_few(const std::int32_t* from, std::int64_t count, std::int64_t* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int32_t value = from[i];
    std::int32_t before = 0;
    for (std::int64_t j = 0; j < i; ++j) before += from[j] <= value;
    for (std::int64_t j = i + 1; j < count; ++j) before += from[j] < value;
    to[before] = value;
  }
}

class UniformBags : public BagLaw {
 public:
  explicit UniformBags(std::vector<std::int64_t> rows) : rows_(std::move(rows)) {}

  void draw(NumpyRandom& random, std::size_t table, std::int64_t size, std::vector<std::int64_t>& rows) override {
    const std::size_t begin = rows.size();
    rows.resize(begin + std::size_t(size));
    std::int64_t* const bag = rows.data() + begin;
    const auto largest = double(rows_[table] - 1);
    if (size <= kFew && rows_[table] <= std::int64_t(1) << 31) {
      std::int32_t drawn[kFew];
      for (std::int64_t i = 0; i < size; ++i) drawn[i] = std::int32_t(std::nearbyint(random.uniform() * largest));
      sort_few(drawn, size, bag);
    } else {
      for (std::int64_t i = 0; i < size; ++i) bag[i] = std::int64_t(std::nearbyint(random.uniform() * largest));
      std::sort(bag, bag + size);
    }
    rows.resize(begin + std::size_t(std::unique(bag, bag + size) - bag));
  }
  void skip(NumpyRandom& random, std::int64_t size) override { random.skip_uniform(std::uint64_t(size)); }

 private:
  std::vector<std::int64_t> rows_;
};

// The reference drops what comes twice before it cuts to whole numbers, so a bag may name a row several times. How many
// words a normal takes depends on the words, so skipping is drawing.
class GaussianBags : public BagLaw {
 public:
  explicit GaussianBags(const RandomClickOptions& options)
      : minimum_(options.minimum),
        maximum_(options.maximum),
        mean_(options.mean == -1 ? (options.minimum + options.maximum) / 2 : options.mean),
        deviation_(options.deviation) {}

  void draw(NumpyRandom& random, std::size_t, std::int64_t size, std::vector<std::int64_t>& rows) override {
    bag_.clear();
    for (std::int64_t i = 0; i < size; ++i)
      bag_.push_back(std::clamp(random.normal(mean_, deviation_), minimum_, maximum_));
    std::sort(bag_.begin(), bag_.end());
    bag_.erase(std::unique(bag_.begin(), bag_.end()), bag_.end());
    for (const double row : bag_) rows.push_back(std::int64_t(row));
  }
  void skip(NumpyRandom& random, std::int64_t size) override {
    for (std::int64_t i = 0; i < size; ++i) (void)random.normal();
  }

 private:
  double minimum_, maximum_, mean_, deviation_;
  std::vector<double> bag_;
};

Status check_gaussian(const RandomClickOptions& options) {
  if (!(options.minimum <= options.maximum) || !(options.deviation >= 0))
    return invalid_argument(fmt::format("gaussian rows from {} to {} with the deviation {} cannot be drawn",
                                        options.minimum, options.maximum, options.deviation),
                            "--rand-data-min must not be above --rand-data-max, and --rand-data-sigma not below 0");
  for (std::size_t table = 0; table < options.shape.rows.size(); ++table) {
    const std::int64_t rows = options.shape.rows[table];
    if (options.minimum > -1 && options.maximum < double(rows)) continue;
    return invalid_argument(fmt::format("gaussian rows from {} to {} do not lie in table {}, which has rows 0 to {}",
                                        options.minimum, options.maximum, table, rows - 1),
                            "--rand-data-min and --rand-data-max are rows that each table must have");
  }
  return {};
}

}  // namespace

Result<std::unique_ptr<ClickSource>> make_random_clicks(const RandomClickOptions& options) {
  if (options.distribution == IndexDistribution::kUniform)
    return make_drawn_clicks(options, std::make_unique<UniformBags>(options.shape.rows));
  TUTTI_TRY(check_gaussian(options));
  return make_drawn_clicks(options, std::make_unique<GaussianBags>(options));
}

}  // namespace tutti
