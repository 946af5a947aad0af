// The text goes through in pieces of whole lines. Every thread does the same in a loop: it takes the next piece (one
// thread at a time, since reading and inflating are sequential), parses it (all at once: this is where the time goes),
// and takes its piece through the stages in which order matters, each of which lets the pieces pass one after another:
// the columns of ids in four groups, where ids get their numbers, and the file. So at any time there are as many pieces
// in memory as threads, and the result does not depend on their number.
//
// Columns whose table of ids outgrew the memory are numbered afterwards (id_numbers.cc), and the order of the samples
// is changed last, from one file into another (shuffle.cc).
#include "tutti/data/clicks/criteo.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "tutti/base/clock.h"
#include "tutti/base/machine.h"
#include "tutti/base/mutex.h"
#include "tutti/base/text.h"
#include "tutti/data/clicks/criteo_lines.h"
#include "tutti/data/clicks/criteo_text.h"
#include "tutti/data/clicks/gate.h"
#include "tutti/data/clicks/id_numbers.h"
#include "tutti/data/clicks/new_folder.h"
#include "tutti/data/clicks/on_threads.h"
#include "tutti/data/clicks/packed.h"

namespace tutti {
namespace {

constexpr std::size_t kColumnGroups = 4;
constexpr std::size_t kWordsKept = 10;  // bad lines that the report quotes
constexpr std::uint64_t kBytesOfThread = std::uint64_t(16) << 20, kBytesOfAll = std::uint64_t(64) << 20;

struct TextPiece {
  TextPiece() : columns(kCriteoDense, kCriteoTables) {}

  std::uint64_t number = 0;
  LinePiece lines;
  std::optional<NumpyRandom> random;  // at its first line, if lines are dropped
  ClickColumns columns;
  std::vector<bool> kept;  // of its lines, those that became samples
  std::vector<BadLine> bad;
  std::uint64_t dropped = 0;
};

class CriteoPacker {
 public:
  CriteoPacker(const CriteoOptions& options, const NewFolder& folder, PackedWriter blocks)
      : options_(options),
        folder_(folder),
        budget_(options.memory - threads() * kBytesOfThread - kBytesOfAll),
        reader_(options.inputs),
        random_(options.seed),
        blocks_(std::move(blocks)) {}

  Status open_columns() {
    for (int table = 0; table < kCriteoTables; ++table)
      columns_.push_back(TUTTI_TRY(ColumnNumbers::create(folder_.file(fmt::format("ids_{:02}.bin", table)), budget_)));
    return {};
  }

  Status run() {
    TUTTI_TRY(measure_inputs());
    TUTTI_TRY(read_text());
    if (report_.samples == 0)
      return Error{.code = Code::kCorrupt,
                   .detail = fmt::format("{}: no sample came out of {} lines", options_.inputs[0], report_.lines)};
    TUTTI_TRY(blocks_.finish_blocks());
    TUTTI_TRY(number_the_rest());
    return write_packed_file();
  }

  CriteoReport report() && { return std::move(report_); }

 private:
  std::size_t threads() const { return std::size_t(options_.threads); }
  bool one_file() const { return options_.inputs.size() == 1; }

  Status measure_inputs() {
    for (const std::string& input : options_.inputs)
      disk_bytes_ += TUTTI_TRY(TUTTI_TRY(PlacedFile::open(input)).size());
    return {};
  }

  // A failure in a gate is the first in the order of the text, since no later piece has passed it.
  Status read_text() {
    return on_threads(
        options_.threads, [this] { return work_on_pieces(); },
        [this] {
          for (Gate& gate : numbering_) gate.stop();
          writing_.stop();
        });
  }

  Status work_on_pieces() {
    TextPiece piece;
    while (TUTTI_TRY(take(piece))) {
      parse(piece);
      for (std::size_t group = 0; group < kColumnGroups; ++group) {
        if (!numbering_[group].enter(piece.number)) return {};
        for (std::size_t table = group; table < columns_.size(); table += kColumnGroups)
          TUTTI_TRY(columns_[table].number(piece.columns.ids[table]));
        numbering_[group].leave();
      }
      if (!writing_.enter(piece.number)) return {};
      TUTTI_TRY(write(piece));
      writing_.leave();
    }
    return {};
  }

  // An error of reading waits for the pieces before it, so that a bad line in one of them is told first.
  Result<bool> take(TextPiece& piece) {
    MutexLock lock(reading_);
    if (failed_reading_) return false;
    piece.number = next_piece_++;
    const auto more = reader_.next(piece.lines);
    if (!more.ok()) {
      failed_reading_ = true;
      lock.unlock();
      if (!writing_.enter(piece.number)) return false;
      return more.error();
    }
    if (*more && options_.sub_sample_rate > 0) {
      piece.random = random_;
      random_.skip_uniform(piece.lines.lines);
    }
    return *more;
  }

  void parse(TextPiece& piece) const {
    piece.columns.clear();
    piece.kept.clear();
    piece.bad.clear();
    piece.dropped = 0;
    std::string_view text = piece.lines.text;
    CriteoSample sample;
    BadLine bad;
    for (std::uint64_t line = piece.lines.first_line; !text.empty(); ++line) {
      const double chance = piece.random ? piece.random->uniform() : 1;
      bool keep = take_criteo_line(text, sample, bad);
      if (!keep) {
        bad.line = line;
        if (piece.bad.size() <= options_.skip_bad_lines) piece.bad.push_back(bad);
      } else if (sample.label == 0 && chance < options_.sub_sample_rate) {
        keep = false;
        ++piece.dropped;
      }
      if (one_file()) piece.kept.push_back(keep);
      if (keep) add(sample, piece.columns);
    }
  }

  void add(const CriteoSample& sample, ClickColumns& columns) const {
    columns.labels.push_back(sample.label);
    columns.dense.insert(columns.dense.end(), sample.dense, sample.dense + kCriteoDense);
    const auto range = std::uint64_t(std::max<std::int64_t>(options_.max_ind_range, 0));
    for (std::size_t table = 0; table < kCriteoTables; ++table)
      columns.ids[table].push_back(range > 0 ? std::uint32_t(sample.ids[table] % range) : sample.ids[table]);
  }

  Status write(const TextPiece& piece) {
    for (const BadLine& bad : piece.bad) {
      const std::string words = to_string(bad, options_.inputs[piece.lines.file]);
      if (++report_.bad_lines > options_.skip_bad_lines) return too_bad(words);
      if (report_.bad_line_words.size() < kWordsKept) report_.bad_line_words.push_back(words);
    }
    while (samples_before_file_.size() <= piece.lines.file) samples_before_file_.push_back(report_.samples);
    if (one_file()) kept_.insert(kept_.end(), piece.kept.begin(), piece.kept.end());
    report_.lines += piece.lines.lines;
    report_.samples += piece.columns.samples();
    report_.dropped += piece.dropped;
    report_.text_bytes += piece.lines.text.size();
    report_.clicked += std::uint64_t(std::count(piece.columns.labels.begin(), piece.columns.labels.end(), 1));
    TUTTI_TRY(blocks_.append(piece.columns));
    options_.progress(
        {"reading", double(reader_disk_bytes()) / double(std::max<std::uint64_t>(disk_bytes_, 1)), report_.text_bytes});
    return {};
  }

  std::uint64_t reader_disk_bytes() {
    const MutexLock lock(reading_);
    return reader_.disk_bytes();
  }

  Error too_bad(const std::string& words) const {
    if (options_.skip_bad_lines == 0)
      return {.code = Code::kCorrupt,
              .detail = words,
              .hint = "mend the line, or let --skip-bad-lines N leave up to N of them out, which are then counted"};
    return {.code = Code::kCorrupt,
            .detail = fmt::format("{}: this is one malformed line more than the {} that may be skipped", words,
                                  options_.skip_bad_lines)};
  }

  // The blocks as they lie in the file, in its order; days and rows are what is known by now.
  PackedHeader header_of_blocks() const {
    PackedHeader header = blocks_.header();
    header.day_begins = day_begins();
    for (std::size_t table = 0; table < columns_.size(); ++table) header.rows[table] = columns_[table].count();
    return header;
  }

  std::vector<std::uint64_t> day_begins() const {
    std::vector<std::uint64_t> begins = samples_before_file_;
    if (one_file()) {
      begins.clear();
      std::uint64_t line = 0, samples = 0;
      for (const std::uint64_t end : tutti::day_begins(report_.lines, std::uint64_t(options_.days))) {
        for (; line < end; ++line) samples += kept_[line];
        begins.push_back(samples);
      }
      return begins;
    }
    begins.resize(options_.inputs.size() + 1, report_.samples);
    return begins;
  }

  Status number_the_rest() {
    const PackedHeader header = header_of_blocks();
    const PackedLayout layout(header);
    std::size_t stopped = 0, done = 0;
    for (ColumnNumbers& column : columns_) {
      if (!column.stopped()) TUTTI_TRY(column.close());
      stopped += column.stopped();
    }
    for (std::size_t table = 0; table < columns_.size(); ++table) {
      if (!columns_[table].stopped()) continue;
      options_.progress({"numbering ids", double(done++) / double(stopped), report_.text_bytes});
      ColumnRuns runs{.file = blocks_.file(), .runs = {}};
      for (std::uint64_t block = 0; block < layout.blocks(); ++block)
        runs.runs.push_back({layout.column_at(block, table), layout.block_size(block)});
      TUTTI_TRY(finish_column(columns_[table], runs, budget_));
    }
    return {};
  }

  Status write_packed_file() {
    const PackedHeader header = header_of_blocks();
    report_.rows = header.rows;
    for (std::size_t day = 0; day < header.days(); ++day)
      report_.samples_of_days.push_back(header.day_begins[day + 1] - header.day_begins[day]);
    if (options_.randomize == Randomize::kNone) {
      TUTTI_TRY(blocks_.finish(header.day_begins, header.rows));
      return rename_file(blocks_.file().path(), folder_.file(kPackedFile));
    }
    PackedWriter shuffled = TUTTI_TRY(PackedWriter::create(folder_.file(kPackedFile), header.dense_features,
                                                           std::uint32_t(header.rows.size()), header.days()));
    const ShuffleOptions options{.randomize = options_.randomize,
                                 .memory = options_.memory - kBytesOfAll * 4 - (options_.memory >> 4),
                                 .threads = options_.threads,
                                 .scratch_path = folder_.file("shuffle.tmp"),
                                 .progress = [&](double share) {
                                   options_.progress({"shuffling", share, report_.text_bytes});
                                 }};
    const MutexLock lock(reading_);
    TUTTI_TRY(shuffle_samples(blocks_.file(), header, shuffled, random_, options));
    TUTTI_TRY(remove_file(blocks_.file().path()));
    return shuffled.finish(header.day_begins, header.rows);
  }

  const CriteoOptions& options_;
  const NewFolder& folder_;
  MemoryBudget budget_;
  std::uint64_t disk_bytes_ = 0;

  Mutex reading_;
  LineReader reader_ TUTTI_GUARDED_BY(reading_);
  NumpyRandom random_ TUTTI_GUARDED_BY(reading_);
  std::uint64_t next_piece_ TUTTI_GUARDED_BY(reading_) = 0;
  bool failed_reading_ TUTTI_GUARDED_BY(reading_) = false;

  Gate numbering_[kColumnGroups];
  std::vector<ColumnNumbers> columns_;  // each is guarded by its group's gate

  Gate writing_;  // guards the next four
  PackedWriter blocks_;
  CriteoReport report_;
  std::vector<std::uint64_t> samples_before_file_;
  std::vector<bool> kept_;  // of all lines of the one file
};

Status check(const CriteoOptions& options) {
  if (options.inputs.empty()) return invalid_argument("no input was given");
  if (options.inputs.size() == 1 && options.days < 1)
    return invalid_argument(fmt::format("one file cannot be cut into {} days", options.days));
  if (!(options.sub_sample_rate >= 0 && options.sub_sample_rate < 1))
    return invalid_argument(fmt::format("a share of {} of the samples cannot be dropped", options.sub_sample_rate),
                            "--sub-sample-rate is at least 0 and below 1");
  const std::uint64_t least = std::uint64_t(options.threads) * kBytesOfThread + 5 * kBytesOfAll;
  if (options.memory < least)
    return invalid_argument(
        fmt::format("{} of memory are too little for {} threads", bytes_text(options.memory), options.threads),
        fmt::format("--memory {}M is the least", (least >> 20) + 1));
  return {};
}

}  // namespace

Result<CriteoReport> pack_criteo(const CriteoOptions& given) {
  const Clock::time_point begin = now();
  CriteoOptions options = given;
  if (options.threads < 1) options.threads = usable_cores();
  TUTTI_TRY(check(options));
  for (const std::string& input : options.inputs) TUTTI_TRY(PlacedFile::open(input));  // before anything is made
  NewFolder folder = TUTTI_TRY(NewFolder::create(options.output));
  const std::size_t days = options.inputs.size() == 1 ? std::size_t(options.days) : options.inputs.size();
  CriteoPacker packer(options, folder,
                      TUTTI_TRY(PackedWriter::create(folder.file("blocks.tmp"), kCriteoDense, kCriteoTables, days)));
  TUTTI_TRY(packer.open_columns());
  TUTTI_TRY(packer.run());
  TUTTI_TRY(folder.commit());
  CriteoReport report = std::move(packer).report();
  report.seconds = seconds_since(begin);
  return report;
}

}  // namespace tutti
