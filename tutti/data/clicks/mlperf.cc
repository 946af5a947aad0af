// Samples lie one after another, so what a rank wants is spread over every page of its batch: the packed form
// (packed.h) is the one that is made for many ranks. The file is mapped, and read once from front to back.
#include "tutti/data/clicks/mlperf.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cmath>
#include <numeric>

#include "tutti/data/placed_file.h"
#include "tutti/data/permutation.h"

namespace tutti {
namespace {

constexpr int kDense = 13;
constexpr std::size_t kTables = 26, kWords = 1 + kDense + kTables, kTableBytes = 4 * kWords;

class MlperfClicks : public ClickSource {
 public:
  MlperfClicks(MlperfClickOptions options, Mapping mapping, BatchCut cut)
      : options_(std::move(options)), mapping_(std::move(mapping)), cut_(cut), order_(std::size_t(cut_.batches())) {
    shape_.dense_features = kDense;
    for (const std::int64_t rows : options_.rows)
      shape_.rows.push_back(options_.max_ind_range > 0 ? std::min(rows, options_.max_ind_range) : rows);
    set_epoch(0);
  }

  const ClickShape& shape() const override { return shape_; }
  std::int64_t batches() const override { return cut_.batches(); }
  std::int64_t samples(std::int64_t batch) const override { return cut_.size(order_[std::size_t(batch)]); }

  void set_epoch(std::int64_t epoch) override {
    if (options_.shuffle_seed) {
      order_ = random_permutation(order_.size(), *options_.shuffle_seed + std::uint64_t(epoch));
    } else {
      std::iota(order_.begin(), order_.end(), std::int64_t(0));
    }
  }

  Status read(std::int64_t batch, const BatchPart& part, ClickBatch& into) override {
    TUTTI_TRY(begin_read(*this, batch, part, into));
    const std::int64_t first = cut_.begin(order_[std::size_t(batch)]);
    float* dense = into.dense.data();
    for (std::int64_t i = part.begin; i < part.end; ++i) {
      const std::int32_t* words = sample(first + i);
      if (words[0] != 0 && words[0] != 1)
        return Error{
            .code = Code::kCorrupt,
            .detail = fmt::format("{}: batch {}, sample {} (sample {} of the file) has the label {}, not 0 or 1",
                                  options_.path, batch, i, first + i, words[0]),
            .hint = "the file is damaged, or it is not MLPerf's binary form"};
      into.targets[std::size_t(i - part.begin)] = float(words[0]);
      for (int feature = 0; feature < kDense; ++feature)
        *dense++ = std::log(float(std::max(words[1 + feature], 0)) + 1);
    }
    for (std::size_t t = 0; t < part.tables.size(); ++t)
      TUTTI_TRY(read_table(batch, first, std::size_t(part.tables[t]), into.samples, into.lookups[t]));
    return {};
  }

 private:
  const std::int32_t* sample(std::int64_t number) const {
    return reinterpret_cast<const std::int32_t*>(mapping_.data()) + std::size_t(number) * kWords;
  }

  Status read_table(std::int64_t batch, std::int64_t first, std::size_t table, std::int64_t samples,
                    Lookups& lookups) const {
    const std::int64_t range = options_.max_ind_range;
    for (std::int64_t i = 0; i < samples; ++i) {
      std::int64_t row = sample(first + i)[1 + kDense + table];
      if (range > 0) row = (row % range + range) % range;
      if (row < 0 || row >= shape_.rows[table])
        return Error{.code = Code::kCorrupt,
                     .detail = fmt::format(
                         "{}: batch {}, sample {} (sample {} of the file) asks for row {} of table {}, which has {}",
                         options_.path, batch, i, first + i, row, table, shape_.rows[table]),
                     .hint =
                         "--max-ind-range takes rows modulo a number; or the sizes of the tables are not those of "
                         "this data"};
      lookups.indices.push_back(row);
      lookups.offsets.push_back(i + 1);
    }
    return {};
  }

  MlperfClickOptions options_;
  Mapping mapping_;
  BatchCut cut_;
  ClickShape shape_;
  std::vector<std::int64_t> order_;  // of the batches in this epoch
};

}  // namespace

Result<std::unique_ptr<ClickSource>> open_mlperf_clicks(const MlperfClickOptions& options) {
  if (options.batch_size < 1) return invalid_argument(fmt::format("a batch of {} samples", options.batch_size));
  if (options.rows.size() != kTables)
    return invalid_argument(
        fmt::format("MLPerf's data has {} tables, and the sizes of {} were given", kTables, options.rows.size()));
  const PlacedFile file = TUTTI_TRY(PlacedFile::open(options.path));
  const std::uint64_t bytes = TUTTI_TRY(file.size());
  if (bytes == 0 || bytes % kTableBytes != 0)
    return Error{.code = Code::kCorrupt,
                 .detail = fmt::format("{}: {} bytes are no whole number of samples of {} bytes", options.path, bytes,
                                       kTableBytes),
                 .hint = bytes == 0 ? "it is empty" : "it is cut off, or it is not MLPerf's binary form"};
  BatchCut cut{.samples = std::int64_t(bytes / kTableBytes), .batch_size = options.batch_size};
  if (options.most_batches > 0) cut.samples = std::min(cut.samples, options.most_batches * options.batch_size);
  Mapping mapping = TUTTI_TRY(file.map());
  if (!options.shuffle_seed) (void)::madvise(mapping.data(), mapping.size(), MADV_SEQUENTIAL);  // only advice
  return std::unique_ptr<ClickSource>(std::make_unique<MlperfClicks>(options, std::move(mapping), cut));
}

}  // namespace tutti
