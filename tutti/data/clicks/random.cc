// The numbers of a batch come out of one generator in a fixed order: the dense rows, then table by table the bags of
// all samples, then the targets. A rank that wants a part of a batch must still draw, or skip, all that comes before
// it.
//
// Skipping doubles is cheap (two words of the engine each), so a bag that nobody wants costs the draw of its size and a
// skip. Normals cannot be skipped: how many words one takes depends on the words.
//
// A batch read out of order: the generator is copied every kStride batches, and goes on from the nearest copy before.
#include "tutti/data/clicks/random.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/numpy_random.h"

namespace tutti {
namespace {

constexpr std::int64_t kStride = 64;

class RandomClicks : public ClickSource {
 public:
  explicit RandomClicks(RandomClickOptions options)
      : options_(std::move(options)),
        cut_{.samples = options_.batches > 0 ? options_.batches * options_.batch_size : options_.samples,
             .batch_size = options_.batch_size},
        random_(options_.seed),
        marks_{random_} {}

  const ClickShape& shape() const override { return options_.shape; }
  std::int64_t batches() const override { return cut_.batches(); }
  std::int64_t samples(std::int64_t batch) const override { return cut_.size(batch); }

  Status read(std::int64_t batch, const BatchPart& part, ClickBatch& into) override {
    TUTTI_TRY(begin_read(*this, batch, part, into));
    go_to(batch);
    draw(part, into);
    return {};
  }

 private:
  void go_to(std::int64_t batch) {
    const std::int64_t mark = std::min(batch / kStride, std::int64_t(marks_.size()) - 1);
    if (next_ > batch || next_ < mark * kStride) {
      random_ = marks_[std::size_t(mark)];
      next_ = mark * kStride;
    }
    ClickBatch nothing;
    while (next_ < batch) {
      nothing.samples = cut_.size(next_);
      draw({}, nothing);
    }
  }

  // Batch next_: `into` has the sizes of begin_read().
  void draw(const BatchPart& part, ClickBatch& into) {
    draw_floats(std::size_t(options_.shape.dense_features), part, into.samples, into.dense);
    for (std::size_t table = 0; table < options_.shape.rows.size(); ++table) {
      const auto wanted = std::find(part.tables.begin(), part.tables.end(), int(table));
      if (wanted == part.tables.end()) {
        skip_table(options_.shape.rows[table], into.samples);
        continue;
      }
      Lookups& lookups = into.lookups[std::size_t(wanted - part.tables.begin())];
      draw_table(options_.shape.rows[table], into.samples, lookups);
      for (auto again = wanted + 1; again != part.tables.end(); ++again)
        if (*again == int(table)) into.lookups[std::size_t(again - part.tables.begin())] = lookups;
    }
    draw_floats(1, part, into.samples, into.targets);
    if (options_.round_targets)
      for (float& target : into.targets) target = std::nearbyint(target);
    ++next_;
    if (next_ % kStride == 0 && next_ / kStride == std::int64_t(marks_.size())) marks_.push_back(random_);
  }

  void draw_floats(std::size_t columns, const BatchPart& part, std::int64_t samples, std::vector<float>& into) {
    random_.skip_uniform(std::uint64_t(part.begin) * columns);
    for (float& value : into) value = float(random_.uniform());
    random_.skip_uniform(std::uint64_t(samples - part.end) * columns);
  }

  std::int64_t draw_bag_size(std::int64_t rows) {
    if (options_.fixed_indices) return options_.indices_per_lookup;
    const double size = random_.uniform() * double(std::min(rows, options_.indices_per_lookup));
    return std::int64_t(std::nearbyint(std::max(1.0, size)));  // halves to even, as numpy rounds
  }

  double draw_gaussian() {
    const double middle = (options_.maximum + options_.minimum) / 2;
    return std::clamp(random_.normal(options_.mean == -1 ? middle : options_.mean, options_.deviation),
                      options_.minimum, options_.maximum);
  }

  void skip_table(std::int64_t rows, std::int64_t samples) {
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const std::int64_t size = draw_bag_size(rows);
      if (options_.distribution == IndexDistribution::kUniform) {
        random_.skip_uniform(std::uint64_t(size));
      } else {
        for (std::int64_t i = 0; i < size; ++i) (void)random_.normal();
      }
    }
  }

  void draw_table(std::int64_t rows, std::int64_t samples, Lookups& lookups) {
    lookups.offsets.reserve(std::size_t(samples) + 1);
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const std::int64_t size = draw_bag_size(rows);
      if (options_.distribution == IndexDistribution::kUniform) {
        draw_uniform_bag(rows, size, lookups.indices);
      } else {
        draw_gaussian_bag(size, lookups.indices);
      }
      lookups.offsets.push_back(std::int64_t(lookups.indices.size()));
    }
  }

  void draw_uniform_bag(std::int64_t rows, std::int64_t size, std::vector<std::int64_t>& indices) {
    const auto begin = std::ptrdiff_t(indices.size());
    for (std::int64_t i = 0; i < size; ++i)
      indices.push_back(std::int64_t(std::nearbyint(random_.uniform() * double(rows - 1))));
    std::sort(indices.begin() + begin, indices.end());
    indices.erase(std::unique(indices.begin() + begin, indices.end()), indices.end());
  }

  // The reference drops what comes twice before it cuts to whole numbers, so a bag may name a row several times.
  void draw_gaussian_bag(std::int64_t size, std::vector<std::int64_t>& indices) {
    bag_.clear();
    for (std::int64_t i = 0; i < size; ++i) bag_.push_back(draw_gaussian());
    std::sort(bag_.begin(), bag_.end());
    bag_.erase(std::unique(bag_.begin(), bag_.end()), bag_.end());
    for (const double row : bag_) indices.push_back(std::int64_t(row));
  }

  RandomClickOptions options_;
  BatchCut cut_;
  NumpyRandom random_;  // stands before batch next_
  std::int64_t next_ = 0;
  std::vector<NumpyRandom> marks_;  // before batches 0, kStride, 2 kStride, ...
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

Result<std::unique_ptr<ClickSource>> make_random_clicks(RandomClickOptions options) {
  if (options.batch_size < 1)
    return invalid_argument(fmt::format("a batch of {} samples", options.batch_size),
                            "--mini-batch-size is at least 1");
  if (options.samples < 1 && options.batches < 1)
    return invalid_argument(fmt::format("a dataset of {} samples", options.samples), "--data-size is at least 1");
  if (options.indices_per_lookup < 1)
    return invalid_argument(fmt::format("{} indices a lookup", options.indices_per_lookup),
                            "--num-indices-per-lookup is at least 1");
  for (std::size_t table = 0; table < options.shape.rows.size(); ++table) {
    if (options.shape.rows[table] < 1)
      return invalid_argument(fmt::format("table {} has {} rows", table, options.shape.rows[table]),
                              "a table has at least one");
  }
  if (options.distribution == IndexDistribution::kGaussian) TUTTI_TRY(check_gaussian(options));
  return std::unique_ptr<ClickSource>(std::make_unique<RandomClicks>(std::move(options)));
}

}  // namespace tutti
