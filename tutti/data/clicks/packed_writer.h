#pragma once
// Writes a packed click file from its beginning to its end. The header comes last: a file that was not finished has
// none.
#include <cstdint>
#include <string>
#include <vector>

#include "tutti/data/clicks/columns.h"
#include "tutti/data/placed_file.h"
#include "tutti/data/clicks/packed_format.h"

namespace tutti {

// One thread at a time.
class PackedWriter {
 public:
  // `days`: as many as finish() will tell. The file must not exist yet.
  static Result<PackedWriter> create(const std::string& path, std::uint32_t dense_features, std::uint32_t tables,
                                     std::size_t days, std::uint32_t block_samples = 65536);

  // Samples [from, to) of `columns` follow.
  Status append(const ClickColumns& columns, std::size_t from, std::size_t to);
  Status append(const ClickColumns& columns) { return append(columns, 0, columns.samples()); }
  std::uint64_t samples() const { return header_.samples; }
  // Writes what is left and the header, and flushes it all to the disk.
  Status finish(std::vector<std::uint64_t> day_begins, std::vector<std::uint64_t> rows);
  // Without days and rows known yet: the blocks alone, still without a header; `layout` for who reads them back.
  Status finish_blocks();
  const PackedHeader& header() const { return header_; }
  const PlacedFile& file() const { return file_; }

 private:
  PackedWriter(PlacedFile file, PackedHeader header);
  Status write_block();

  PlacedFile file_;
  PackedHeader header_;
  ClickColumns block_;
  std::uint64_t at_;  // where the next block begins
};

}  // namespace tutti
