// A sample needs nothing but its number, so threads make pieces of samples at once, and a gate lets them write in
// order.
#include "tutti/data/clicks/planted_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <vector>

#include "tutti/base/machine.h"
#include "tutti/data/clicks/criteo_text.h"
#include "tutti/data/clicks/gate.h"
#include "tutti/data/clicks/new_folder.h"
#include "tutti/data/clicks/on_threads.h"
#include "tutti/data/clicks/packed.h"
#include "tutti/data/clicks/packed_writer.h"

namespace tutti {
namespace {

constexpr std::uint64_t kPiece = 16384;

// Calls make(first, end, piece) for pieces of [0, samples) on all threads, and write(piece) in order.
template <class Piece, class Make, class Write>
Status in_pieces(const PlantedFileOptions& options, const Piece& empty, const Make& make, const Write& write) {
  std::atomic<std::uint64_t> next{0};
  Gate writing;
  const auto work = [&]() -> Status {
    Piece piece = empty;
    for (std::uint64_t number; (number = next.fetch_add(1)) * kPiece < options.samples;) {
      const std::uint64_t first = number * kPiece, end = std::min(first + kPiece, options.samples);
      make(first, end, piece);
      if (!writing.enter(number)) return {};
      TUTTI_TRY(write(piece));
      options.progress(double(end) / double(options.samples));
      writing.leave();
    }
    return {};
  };
  return on_threads(options.threads > 0 ? options.threads : usable_cores(), work, [&] { writing.stop(); });
}

void append_line(const PlantedClicks& clicks, std::uint64_t sample, std::string& text) {
  std::int32_t counts[kCriteoDense];
  clicks.counts(sample, counts);
  text += clicks.truth(sample).clicked ? '1' : '0';
  for (int i = 0; i < kCriteoDense; ++i) {
    text += '\t';
    if (counts[i] != 0 || (sample + std::uint64_t(i)) % 2 == 0)
      fmt::format_to(std::back_inserter(text), "{}", counts[i]);
  }
  for (int table = 0; table < kCriteoTables; ++table)
    fmt::format_to(std::back_inserter(text), "\t{:08x}", id_of_row(table, clicks.row(sample, table)));
  text += '\n';
}

}  // namespace

// An odd factor permutes the 32-bit numbers, and so does folding the high half into the low one.
std::uint32_t id_of_row(int table, std::int64_t row) {
  std::uint32_t id = (std::uint32_t(row) + 1) * 0x9e3779b1u + std::uint32_t(table) * 0x85ebca77u;
  id = (id ^ id >> 16) * 0x7feb352du;
  return id ^ id >> 15;
}

Status write_planted_packed(const PlantedClicks& clicks, const PlantedFileOptions& options) {
  if (options.samples == 0 || options.days < 1)
    return invalid_argument(fmt::format("{} samples in {} days cannot be written", options.samples, options.days));
  NewFolder folder = TUTTI_TRY(NewFolder::create(options.output));
  const auto dense = std::uint32_t(clicks.options().dense_features);
  const std::size_t tables = clicks.options().rows.size();
  PackedWriter writer = TUTTI_TRY(
      PackedWriter::create(folder.file(kPackedFile), dense, std::uint32_t(tables), std::size_t(options.days)));
  const auto make = [&](std::uint64_t first, std::uint64_t end, ClickColumns& columns) {
    columns.clear();
    columns.dense.resize((end - first) * dense);
    for (std::uint64_t sample = first; sample < end; ++sample) {
      columns.labels.push_back(clicks.truth(sample).clicked);
      clicks.counts(sample, std::span(columns.dense).subspan((sample - first) * dense, dense));
      for (std::size_t table = 0; table < tables; ++table)
        columns.ids[table].push_back(std::uint32_t(clicks.row(sample, int(table))));
    }
  };
  TUTTI_TRY(in_pieces(options, ClickColumns(dense, tables), make,
                      [&](const ClickColumns& columns) { return writer.append(columns); }));
  TUTTI_TRY(writer.finish(day_begins(options.samples, std::uint64_t(options.days)),
                          {clicks.options().rows.begin(), clicks.options().rows.end()}));
  return folder.commit();
}

Status write_planted_text(const PlantedClicks& clicks, const PlantedFileOptions& options) {
  if (options.samples == 0) return invalid_argument("0 samples cannot be written");
  if (clicks.options().dense_features != kCriteoDense || clicks.options().rows.size() != kCriteoTables)
    return invalid_argument(fmt::format("Criteo's text has {} dense features and {} tables, not {} and {}",
                                        kCriteoDense, kCriteoTables, clicks.options().dense_features,
                                        clicks.options().rows.size()));
  const std::string& path = options.output;
  if (::access(path.c_str(), F_OK) == 0)
    return invalid_argument(fmt::format("{} is there already", path), "give another name, or remove it first");
  const std::string working = path + ".unfinished";
  (void)::unlink(working.c_str());  // of a run that was killed
  const PlacedFile file = TUTTI_TRY(PlacedFile::create(working));
  std::uint64_t at = 0;
  const auto make = [&](std::uint64_t first, std::uint64_t end, std::string& text) {
    text.clear();
    for (std::uint64_t sample = first; sample < end; ++sample) append_line(clicks, sample, text);
  };
  const auto write = [&](const std::string& text) -> Status {
    TUTTI_TRY(file.write(at, std::as_bytes(std::span(text))));
    at += text.size();
    return {};
  };
  Status written = in_pieces(options, std::string(), make, write);
  if (written.ok()) written = file.flush();
  if (written.ok()) written = rename_file(working, path);
  if (!written.ok()) (void)::unlink(working.c_str());
  return written;
}

}  // namespace tutti
