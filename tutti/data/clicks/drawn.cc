// The numbers of a batch come in this order: the dense rows, then table by table the bags of all samples (of each its
// size, then its rows), then the targets. A rank that wants a part of a batch must still draw, or skip, all that comes
// before it. Skipping is cheap where a draw takes a known number of the engine's words.
//
// A batch read out of order: the generator is copied every kStride batches, and goes on from the nearest copy before.
#include "tutti/data/clicks/drawn.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace tutti {
namespace {

constexpr std::int64_t kStride = 64;

class DrawnClicks : public ClickSource {
 public:
  DrawnClicks(DrawnClickOptions options, std::unique_ptr<BagLaw> law)
      : options_(std::move(options)),
        law_(std::move(law)),
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
        for (std::int64_t sample = 0; sample < into.samples; ++sample)
          law_->skip(random_, draw_bag_size(options_.shape.rows[table]));
        continue;
      }
      Lookups& lookups = into.lookups[std::size_t(wanted - part.tables.begin())];
      draw_table(table, into.samples, lookups);
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

  void draw_table(std::size_t table, std::int64_t samples, Lookups& lookups) {
    for (std::int64_t sample = 0; sample < samples; ++sample) {
      const std::int64_t size = draw_bag_size(options_.shape.rows[table]);
      law_->draw(random_, table, size, lookups.indices);
      lookups.offsets.push_back(std::int64_t(lookups.indices.size()));
    }
  }

  DrawnClickOptions options_;
  std::unique_ptr<BagLaw> law_;
  BatchCut cut_;
  NumpyRandom random_;  // stands before batch next_
  std::int64_t next_ = 0;
  std::vector<NumpyRandom> marks_;  // before batches 0, kStride, 2 kStride, ...
};

}  // namespace

Result<std::unique_ptr<ClickSource>> make_drawn_clicks(DrawnClickOptions options, std::unique_ptr<BagLaw> law) {
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
  return std::unique_ptr<ClickSource>(std::make_unique<DrawnClicks>(std::move(options), std::move(law)));
}

}  // namespace tutti
