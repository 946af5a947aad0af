#include "tutti/data/clicks/packed_writer.h"

#include <algorithm>

namespace tutti {
namespace {

template <class T>
void append_range(std::vector<T>& to, const std::vector<T>& from, std::size_t begin, std::size_t end) {
  to.insert(to.end(), from.begin() + std::ptrdiff_t(begin), from.begin() + std::ptrdiff_t(end));
}

}  // namespace

PackedWriter::PackedWriter(PlacedFile file, PackedHeader header)
    : file_(std::move(file)),
      header_(std::move(header)),
      block_(header_.dense_features, header_.rows.size()),
      at_(PackedLayout(header_).header_bytes()) {}

Result<PackedWriter> PackedWriter::create(const std::string& path, std::uint32_t dense_features, std::uint32_t tables,
                                          std::size_t days, std::uint32_t block_samples) {
  PackedHeader header{.dense_features = dense_features, .block_samples = block_samples};
  header.day_begins.resize(days + 1);
  header.rows.resize(tables);
  return PackedWriter(TUTTI_TRY(PlacedFile::create(path)), std::move(header));
}

Status PackedWriter::append(const ClickColumns& columns, std::size_t from, std::size_t to) {
  while (from < to) {
    const std::size_t end = std::min(to, from + header_.block_samples - block_.samples());
    append_range(block_.labels, columns.labels, from, end);
    append_range(block_.dense, columns.dense, from * columns.dense_features, end * columns.dense_features);
    for (std::size_t table = 0; table < columns.ids.size(); ++table)
      append_range(block_.ids[table], columns.ids[table], from, end);
    header_.samples += end - from;
    from = end;
    if (block_.samples() == header_.block_samples) TUTTI_TRY(write_block());
  }
  return {};
}

Status PackedWriter::write_block() {
  const auto put = [&](const auto& values) -> Status {
    TUTTI_TRY(file_.write(at_, std::as_bytes(std::span(values))));
    at_ += 4 * values.size();
    return {};
  };
  TUTTI_TRY(put(block_.labels));
  TUTTI_TRY(put(block_.dense));
  for (const auto& column : block_.ids) TUTTI_TRY(put(column));
  block_.clear();
  return {};
}

Status PackedWriter::finish_blocks() { return write_block(); }

Status PackedWriter::finish(std::vector<std::uint64_t> day_begins, std::vector<std::uint64_t> rows) {
  TUTTI_TRY(write_block());
  header_.day_begins = std::move(day_begins);
  header_.rows = std::move(rows);
  TUTTI_TRY(file_.flush());  // the blocks first: a header says that they are there
  const std::vector<std::uint8_t> header = encode(header_);
  TUTTI_TRY(file_.write(0, std::as_bytes(std::span(header))));
  return file_.flush();
}

}  // namespace tutti
