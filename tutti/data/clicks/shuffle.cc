// Fetching samples one by one in a random order from a file larger than memory would wait for the disk at each. Instead
// the samples are dealt: they are read in the order in which they lie, and each goes as a row to the bucket that its
// new place falls into; then bucket after bucket is taken up again, and its rows are put into their places. So all is
// read twice and written twice, nearly in sequence, whatever the order. All buckets lie in one scratch file, in pieces
// that are written as they fill.
//
// The permutation must be in memory for that. It is for Kaggle's data and for a day of the Terabyte; for more, a
// sample's bucket is drawn, and its place within the bucket when the bucket is taken up.
#include "tutti/data/clicks/shuffle.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include "tutti/base/mutex.h"
#include "tutti/data/clicks/gate.h"
#include "tutti/data/clicks/on_threads.h"

namespace tutti {
namespace {

constexpr std::uint64_t kBucketBytes = std::uint64_t(32) << 20;  // its rows are put into places within the cache
constexpr std::uint64_t kMostBuckets = 2000;
constexpr std::size_t kPieceWords = std::size_t(48) << 10, kPieceWordsOfAll = std::size_t(32) << 20;

// Calls use(columns of some samples) for the samples [begin, end) of a file in their order.
class BlockReader {
 public:
  BlockReader(const PlacedFile& file, const PackedHeader& header)
      : file_(file), layout_(header), columns_(header.dense_features, header.rows.size()) {}

  template <class Use>
  Status read(std::uint64_t begin, std::uint64_t end, const Use& use) {
    while (begin < end) {
      const std::uint64_t block = layout_.block_of(begin), within = begin - layout_.block_begin(block);
      const std::uint64_t count = std::min(end - begin, layout_.block_size(block) - within);
      const std::size_t dense = columns_.dense_features;
      TUTTI_TRY(fetch(layout_.labels_at(block) + 4 * within, count, columns_.labels));
      TUTTI_TRY(fetch(layout_.dense_at(block) + 4 * within * dense, count * dense, columns_.dense));
      for (std::size_t table = 0; table < columns_.ids.size(); ++table)
        TUTTI_TRY(fetch(layout_.column_at(block, table) + 4 * within, count, columns_.ids[table]));
      TUTTI_TRY(use(columns_));
      begin += count;
    }
    return {};
  }

 private:
  template <class T>
  Status fetch(std::uint64_t at, std::uint64_t count, std::vector<T>& into) {
    into.resize(count);
    return file_.read(at, std::as_writable_bytes(std::span(into)));
  }

  const PlacedFile& file_;
  PackedLayout layout_;
  ClickColumns columns_;
};

// Rows of words in buckets, in one file without a name.
class Buckets {
 public:
  static Result<Buckets> create(const std::string& path, std::size_t buckets, std::size_t row_words) {
    Buckets made(TUTTI_TRY(PlacedFile::create(path)), buckets, row_words);
    if (::unlink(path.c_str()) != 0) return system_error(errno, fmt::format("cannot remove {}", path));
    return made;
  }

  // Room for one more row of the bucket, to be filled before the next call.
  Result<std::uint32_t*> add(std::size_t bucket) {
    std::vector<std::uint32_t>& rows = filling_[bucket];
    if (rows.size() + row_words_ > piece_words_) TUTTI_TRY(put(bucket));
    rows.resize(rows.size() + row_words_);
    return rows.data() + rows.size() - row_words_;
  }
  Status flush() {
    for (std::size_t bucket = 0; bucket < filling_.size(); ++bucket) {
      TUTTI_TRY(put(bucket));
      std::vector<std::uint32_t>().swap(filling_[bucket]);
    }
    return {};
  }
  std::size_t size() const { return filling_.size(); }
  std::uint64_t rows(std::size_t bucket) const {
    std::uint64_t words = 0;
    for (const SpilledRun& piece : pieces_[bucket]) words += piece.words;
    return words / row_words_;
  }
  // Calls use(row) for each row of the bucket, in the order in which they were added. Any thread may call this.
  template <class Use>
  Status read(std::size_t bucket, std::vector<std::uint32_t>& buffer, const Use& use) const {
    for (const SpilledRun& piece : pieces_[bucket]) {
      buffer.resize(piece.words);
      TUTTI_TRY(file_.read(piece.at, std::as_writable_bytes(std::span(buffer))));
      for (std::size_t at = 0; at < buffer.size(); at += row_words_) use(buffer.data() + at);
    }
    return {};
  }

 private:
  struct SpilledRun {
    std::uint64_t at, words;
  };
  Buckets(PlacedFile file, std::size_t buckets, std::size_t row_words)
      : file_(std::move(file)),
        row_words_(row_words),
        piece_words_(std::max(row_words, std::min(kPieceWords, kPieceWordsOfAll / buckets))),
        filling_(buckets),
        pieces_(buckets) {
    for (auto& rows : filling_) rows.reserve(piece_words_);
  }
  Status put(std::size_t bucket) {
    std::vector<std::uint32_t>& rows = filling_[bucket];
    if (rows.empty()) return {};
    TUTTI_TRY(file_.write(end_, std::as_bytes(std::span(rows))));
    pieces_[bucket].push_back({end_, rows.size()});
    end_ += 4 * rows.size();
    rows.clear();
    return {};
  }

  PlacedFile file_;
  std::size_t row_words_, piece_words_;
  std::vector<std::vector<std::uint32_t>> filling_;
  std::vector<std::vector<SpilledRun>> pieces_;
  std::uint64_t end_ = 0;
};

class Shuffle {
 public:
  Shuffle(const PlacedFile& from, const PackedHeader& header, PackedWriter& to, NumpyRandom& random,
          const ShuffleOptions& options)
      : header_(header), to_(to), random_(random), options_(options), reader_(from, header) {}

  Status run() {
    const std::uint64_t last_day = header_.day_begins[header_.days() - 1];
    switch (options_.randomize) {
      case Randomize::kTotal:
        TUTTI_TRY(permute(0, last_day));
        break;
      case Randomize::kDay:
        for (std::size_t day = 0; day + 1 < header_.days(); ++day)
          TUTTI_TRY(permute(header_.day_begins[day], header_.day_begins[day + 1]));
        break;
      case Randomize::kNone:
        TUTTI_TRY(copy(0, last_day));
        break;
    }
    return copy(last_day, header_.samples);
  }

 private:
  Status copy(std::uint64_t begin, std::uint64_t end) {
    return reader_.read(begin, end, [&](const ClickColumns& columns) {
      report(2 * columns.samples());
      return to_.append(columns);
    });
  }

  Status permute(std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t count = end - begin;
    if (count == 0) return {};
    const bool exact = count <= options_.memory / 8;
    const std::uint64_t bytes = count * header_.sample_bytes();
    const std::uint64_t wanted = std::clamp<std::uint64_t>(bytes / kBucketBytes + 1, 1, kMostBuckets);
    const std::uint64_t share = (count + wanted - 1) / wanted;  // rows of each bucket
    std::vector<std::uint32_t> places;
    if (exact) places = draw_places(count);
    const std::size_t words = header_.sample_bytes() / 4;
    Buckets buckets = TUTTI_TRY(Buckets::create(options_.scratch_path, (count + share - 1) / share, 1 + words));
    TUTTI_TRY(deal(begin, end, places, share, buckets));
    std::vector<std::uint32_t>().swap(places);
    return collect_all(buckets, exact);
  }

  // Where each sample goes: the inverse of the permutation.
  std::vector<std::uint32_t> draw_places(std::uint64_t count) {
    std::vector<std::uint32_t> order(count), places(count);
    std::iota(order.begin(), order.end(), 0u);
    random_.shuffle(std::span(order));
    for (std::size_t i = 0; i < order.size(); ++i) places[order[i]] = std::uint32_t(i);
    return places;
  }

  // A row is its place within its bucket (where places are known), the label, the dense features, the ids.
  Status deal(std::uint64_t begin, std::uint64_t end, const std::vector<std::uint32_t>& places, std::uint64_t share,
              Buckets& buckets) {
    std::uint64_t sample = 0;
    TUTTI_TRY(reader_.read(begin, end, [&](const ClickColumns& columns) -> Status {
      const std::size_t dense = columns.dense_features;
      for (std::size_t i = 0; i < columns.samples(); ++i, ++sample) {
        const std::uint64_t place = places.empty() ? 0 : places[sample];
        const std::size_t bucket =
            places.empty() ? std::size_t(random_.integer(0, std::int64_t(buckets.size()))) : std::size_t(place / share);
        std::uint32_t* row = TUTTI_TRY(buckets.add(bucket));
        *row++ = std::uint32_t(place % share);
        *row++ = std::uint32_t(columns.labels[i]);
        std::memcpy(row, columns.dense.data() + i * dense, 4 * dense);
        row += dense;
        for (const auto& column : columns.ids) *row++ = column[i];
      }
      report(columns.samples());
      return {};
    }));
    return buckets.flush();
  }

  // Threads take up buckets at once, and append them in order.
  Status collect_all(const Buckets& buckets, bool places_known) {
    Gate appending;
    struct {
      Mutex mutex;  // also orders the draws
      std::size_t next TUTTI_GUARDED_BY(mutex) = 0;
    } taking;
    const auto work = [&]() -> Status {
      ClickColumns columns(header_.dense_features, header_.rows.size());
      std::vector<std::uint32_t> buffer, places;
      for (;;) {
        MutexLock lock(taking.mutex);
        if (taking.next == buckets.size()) return {};
        const std::size_t bucket = taking.next++;
        if (!places_known) places = draw_places(buckets.rows(bucket));
        lock.unlock();
        TUTTI_TRY(collect(buckets, bucket, places, buffer, columns));
        if (!appending.enter(bucket)) return {};
        report(columns.samples());
        TUTTI_TRY(to_.append(columns));
        appending.leave();
      }
    };
    return on_threads(options_.threads, work, [&] { appending.stop(); });
  }

  // Without `places` the rows tell theirs.
  Status collect(const Buckets& buckets, std::size_t bucket, const std::vector<std::uint32_t>& places,
                 std::vector<std::uint32_t>& buffer, ClickColumns& columns) const {
    const std::uint64_t rows = buckets.rows(bucket);
    const std::size_t dense = columns.dense_features;
    columns.labels.resize(rows);
    columns.dense.resize(rows * dense);
    for (auto& column : columns.ids) column.resize(rows);
    std::size_t number = 0;
    return buckets.read(bucket, buffer, [&](const std::uint32_t* row) {
      const std::size_t place = places.empty() ? row[0] : places[number];
      ++number;
      columns.labels[place] = std::int32_t(row[1]);
      std::memcpy(columns.dense.data() + place * dense, row + 2, 4 * dense);
      for (std::size_t table = 0; table < columns.ids.size(); ++table)
        columns.ids[table][place] = row[2 + dense + table];
    });
  }

  void report(std::uint64_t samples) {
    done_ += samples;
    options_.progress(double(done_) / double(2 * header_.samples));
  }

  const PackedHeader& header_;
  PackedWriter& to_;
  NumpyRandom& random_;
  const ShuffleOptions& options_;
  BlockReader reader_;
  std::uint64_t done_ = 0;
};

}  // namespace

Status shuffle_samples(const PlacedFile& from, const PackedHeader& header, PackedWriter& to, NumpyRandom& random,
                       const ShuffleOptions& options) {
  return Shuffle(from, header, to, random, options).run();
}

}  // namespace tutti
