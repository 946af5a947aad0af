#include "tutti/data/clicks/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

class UniformBags : public BagLaw {
 public:
  explicit UniformBags(std::vector<std::int64_t> rows) : rows_(std::move(rows)) {}

  void draw(NumpyRandom& random, std::size_t table, std::int64_t size, std::vector<std::int64_t>& rows) override {
    const auto begin = std::ptrdiff_t(rows.size());
    for (std::int64_t i = 0; i < size; ++i)
      rows.push_back(std::int64_t(std::nearbyint(random.uniform() * double(rows_[table] - 1))));
    std::sort(rows.begin() + begin, rows.end());
    rows.erase(std::unique(rows.begin() + begin, rows.end()), rows.end());
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
