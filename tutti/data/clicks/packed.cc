// A batch may begin and end within blocks; it is read run by run, a run being what one block has of it. The kernel
// reads ahead as pages are touched; the runs of the next batch are announced to it (MADV_WILLNEED) when one is read,
// since the columns of a table lie a block apart, which its own guess does not see.
#include "tutti/data/clicks/packed.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "tutti/data/placed_file.h"

namespace tutti {
namespace {

Error name_file(Error error, const std::string& path) {
  if (error.code == Code::kCorrupt) error.detail = fmt::format("{}: {}", path, error.detail);
  return error;
}

std::string file_of(const std::string& path) {
  struct stat info {};
  const bool folder = ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
  return folder ? path + "/" + kPackedFile : path;
}

Result<PackedHeader> read_header(const PlacedFile& file) {
  const std::uint64_t size = TUTTI_TRY(file.size());
  std::vector<std::uint8_t> bytes(std::min<std::uint64_t>(size, kMostHeaderBytes));
  TUTTI_TRY(file.read(0, std::as_writable_bytes(std::span(bytes))));
  auto header = decode_packed_header(bytes, size);
  if (!header.ok()) return name_file(header.error(), file.path());
  return header;
}

const char* name(ClickSplit split) {
  switch (split) {
    case ClickSplit::kAll:
      return "all";
    case ClickSplit::kTrain:
      return "training";
    case ClickSplit::kTest:
      return "test";
    case ClickSplit::kValidation:
      return "validation";
  }
  return "?";
}

class PackedClicks : public ClickSource {
 public:
  PackedClicks(PackedClickOptions options, std::string path, Mapping mapping, const PackedHeader& header,
               std::uint64_t first, BatchCut cut)
      : options_(std::move(options)),
        path_(std::move(path)),
        mapping_(std::move(mapping)),
        layout_(header),
        rows_in_file_(header.rows),
        first_(first),
        cut_(cut) {
    shape_.dense_features = int(header.dense_features);
    for (const std::uint64_t rows : header.rows) {
      const auto all = std::int64_t(rows);
      shape_.rows.push_back(options_.max_ind_range > 0 ? std::min(all, options_.max_ind_range) : all);
    }
  }

  const ClickShape& shape() const override { return shape_; }
  std::int64_t batches() const override { return cut_.batches(); }
  std::int64_t samples(std::int64_t batch) const override { return cut_.size(batch); }

  Status read(std::int64_t batch, const BatchPart& part, ClickBatch& into) override {
    TUTTI_TRY(begin_read(*this, batch, part, into));
    const std::uint64_t begin = first_ + std::uint64_t(cut_.begin(batch));
    read_dense(begin + std::uint64_t(part.begin), begin + std::uint64_t(part.end), into);
    TUTTI_TRY(check_labels(batch, begin, part, into));
    for (std::size_t i = 0; i < part.tables.size(); ++i)
      TUTTI_TRY(read_column(batch, begin, part.tables[i], into.samples, into.lookups[i]));
    if (batch + 1 < batches()) announce(begin + std::uint64_t(cut_.batch_size), cut_.size(batch + 1), part);
    return {};
  }

 private:
  // Calls run(block, first sample within the block, number of samples) for what each block has of [begin, end).
  template <class Run>
  void for_runs(std::uint64_t begin, std::uint64_t end, const Run& run) const {
    while (begin < end) {
      const std::uint64_t block = layout_.block_of(begin), within = begin - layout_.block_begin(block);
      const std::uint64_t count = std::min(end - begin, layout_.block_size(block) - within);
      run(block, within, count);
      begin += count;
    }
  }

  template <class T>
  const T* at(std::uint64_t byte) const {
    return reinterpret_cast<const T*>(mapping_.data() + byte);
  }

  void read_dense(std::uint64_t begin, std::uint64_t end, ClickBatch& into) const {
    float *dense = into.dense.data(), *targets = into.targets.data();
    const auto features = std::uint64_t(shape_.dense_features);
    for_runs(begin, end, [&](std::uint64_t block, std::uint64_t within, std::uint64_t count) {
      const auto* labels = at<std::int32_t>(layout_.labels_at(block)) + within;
      targets = std::transform(labels, labels + count, targets, [](std::int32_t label) { return float(label); });
      const auto* counts = at<std::int32_t>(layout_.dense_at(block)) + within * features;
      dense = std::transform(counts, counts + count * features, dense,
                             [](std::int32_t x) { return std::log(float(std::max(x, 0)) + 1); });
    });
  }

  Status read_column(std::int64_t batch, std::uint64_t begin, int table, std::int64_t samples, Lookups& lookups) const {
    lookups.offsets.resize(std::size_t(samples) + 1);
    lookups.indices.resize(std::size_t(samples));
    for (std::size_t i = 0; i < lookups.offsets.size(); ++i) lookups.offsets[i] = std::int64_t(i);
    std::int64_t* indices = lookups.indices.data();
    std::uint32_t largest = 0;
    for_runs(begin, begin + std::uint64_t(samples),
             [&](std::uint64_t block, std::uint64_t within, std::uint64_t count) {
               const auto* column = at<std::uint32_t>(layout_.column_at(block, std::size_t(table))) + within;
               for (std::uint64_t i = 0; i < count; ++i) {
                 largest = std::max(largest, column[i]);
                 *indices++ = column[i];
               }
             });
    if (largest >= rows_in_file_[std::size_t(table)]) return outside(batch, begin, table, lookups);
    if (options_.max_ind_range > 0)
      for (std::int64_t& row : lookups.indices) row %= options_.max_ind_range;
    return {};
  }

  Status check_labels(std::int64_t batch, std::uint64_t begin, const BatchPart& part,
                      const ClickBatch& batch_read) const {
    for (std::size_t i = 0; i < batch_read.targets.size(); ++i) {
      const float label = batch_read.targets[i];
      if (label == 0 || label == 1) continue;
      const auto place = std::uint64_t(part.begin) + i;
      return Error{.code = Code::kCorrupt,
                   .detail = fmt::format("{}: batch {}, sample {} (sample {} of the file) has the label {}, not 0 or 1",
                                         path_, batch, place, begin + place, label),
                   .hint = "the file is damaged: copy it again, or make it again"};
    }
    return {};
  }

  Error outside(std::int64_t batch, std::uint64_t begin, int table, const Lookups& lookups) const {
    const std::uint64_t rows = rows_in_file_[std::size_t(table)];
    const auto found = std::find_if(lookups.indices.begin(), lookups.indices.end(),
                                    [&](std::int64_t row) { return std::uint64_t(row) >= rows; });
    const auto place = std::uint64_t(found - lookups.indices.begin());
    return {.code = Code::kCorrupt,
            .detail =
                fmt::format("{}: batch {}, sample {} (sample {} of the file) asks for row {} of table {}, which has {}",
                            path_, batch, place, begin + place, *found, table, rows),
            .hint = "the file is damaged: copy it again, or make it again"};
  }

  void announce(std::uint64_t begin, std::int64_t samples, const BatchPart& part) const {
    const std::uint64_t end = begin + std::uint64_t(samples);
    for_runs(begin, end, [&](std::uint64_t block, std::uint64_t within, std::uint64_t count) {
      for (const int table : part.tables)
        announce_bytes(layout_.column_at(block, std::size_t(table)) + 4 * within, 4 * count);
    });
    const auto features = std::uint64_t(shape_.dense_features);
    const std::uint64_t from = std::min(begin + std::uint64_t(part.begin), end);
    for_runs(from, std::min(begin + std::uint64_t(part.end), end),
             [&](std::uint64_t block, std::uint64_t within, std::uint64_t count) {
               announce_bytes(layout_.dense_at(block) + 4 * within * features, 4 * count * features);
             });
  }

  void announce_bytes(std::uint64_t at, std::uint64_t bytes) const {
    static const auto page = std::uint64_t(::sysconf(_SC_PAGESIZE));
    const std::uint64_t begin = at / page * page;
    (void)::madvise(mapping_.data() + begin, at + bytes - begin, MADV_WILLNEED);  // advice: its failure costs time only
  }

  PackedClickOptions options_;
  std::string path_;
  Mapping mapping_;
  PackedLayout layout_;
  std::vector<std::uint64_t> rows_in_file_;
  ClickShape shape_;
  std::uint64_t first_;
  BatchCut cut_;
};

}  // namespace

std::pair<std::uint64_t, std::uint64_t> samples_of(const PackedHeader& header, ClickSplit split) {
  const std::uint64_t last_day = header.day_begins[header.days() - 1];
  const std::uint64_t middle = last_day + (header.samples - last_day + 1) / 2;
  switch (split) {
    case ClickSplit::kAll:
      return {0, header.samples};
    case ClickSplit::kTrain:
      return {0, last_day};
    case ClickSplit::kTest:
      return {last_day, middle};
    case ClickSplit::kValidation:
      return {middle, header.samples};
  }
  return {0, 0};
}

Result<PackedHeader> read_packed_header(const std::string& path) {
  const PlacedFile file = TUTTI_TRY(PlacedFile::open(file_of(path)));
  return read_header(file);
}

Result<std::unique_ptr<ClickSource>> open_packed_clicks(const PackedClickOptions& options) {
  if (options.batch_size < 1) return invalid_argument(fmt::format("a batch of {} samples", options.batch_size));
  const PlacedFile file = TUTTI_TRY(PlacedFile::open(file_of(options.path)));
  const PackedHeader header = TUTTI_TRY(read_header(file));
  const auto [first, end] = samples_of(header, options.split);
  if (first == end)
    return invalid_argument(
        fmt::format("{} has no {} samples: {} samples in {} day{}", file.path(), name(options.split), header.samples,
                    header.days(), header.days() == 1 ? "" : "s"),
        "training takes all days but the last, test and validation its halves");
  BatchCut cut{.samples = std::int64_t(end - first), .batch_size = options.batch_size};
  if (options.most_batches > 0) cut.samples = std::min(cut.samples, options.most_batches * options.batch_size);
  Mapping mapping = TUTTI_TRY(file.map());
  return std::unique_ptr<ClickSource>(
      std::make_unique<PackedClicks>(options, file.path(), std::move(mapping), header, first, cut));
}

}  // namespace tutti
