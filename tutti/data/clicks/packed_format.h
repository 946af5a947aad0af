#pragma once
// The packed click file, as docs/reference/formats.md describes it: a header, then blocks of samples. A block holds its
// labels, then its dense rows, then one column of rows for each table, so that a batch's slice of dense rows is one run
// of bytes, and so is a table's column. Everything is little-endian; every value of a sample has four bytes.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"

namespace tutti {

struct PackedHeader {
  std::uint64_t samples = 0;
  std::uint32_t dense_features = 0;
  std::uint32_t block_samples = 65536;    // of every block but the last
  std::vector<std::uint64_t> day_begins;  // the first sample of each day, ascending from 0, and the number of samples
  std::vector<std::uint64_t> rows;        // of each table: its column holds values below it

  std::size_t days() const { return day_begins.empty() ? 0 : day_begins.size() - 1; }
  std::uint64_t sample_bytes() const { return 4 * (1 + std::uint64_t(dense_features) + rows.size()); }
};

// Days of equal length, the first ones a sample longer where they must be: as PackedHeader::day_begins.
std::vector<std::uint64_t> day_begins(std::uint64_t samples, std::uint64_t days);

// Where the parts of a packed file lie, in bytes from its start.
class PackedLayout {
 public:
  explicit PackedLayout(const PackedHeader& header);

  std::uint64_t header_bytes() const { return header_bytes_; }
  std::uint64_t file_bytes() const { return header_bytes_ + samples_ * sample_bytes_; }
  std::uint64_t blocks() const { return (samples_ + block_samples_ - 1) / block_samples_; }
  std::uint64_t block_begin(std::uint64_t block) const { return block * block_samples_; }  // its first sample
  std::uint64_t block_size(std::uint64_t block) const;                                     // in samples
  std::uint64_t block_of(std::uint64_t sample) const { return sample / block_samples_; }
  std::uint64_t block_at(std::uint64_t block) const { return header_bytes_ + block_begin(block) * sample_bytes_; }
  std::uint64_t labels_at(std::uint64_t block) const { return block_at(block); }
  std::uint64_t dense_at(std::uint64_t block) const { return block_at(block) + 4 * block_size(block); }
  std::uint64_t column_at(std::uint64_t block, std::size_t table) const {
    return block_at(block) + 4 * block_size(block) * (1 + dense_features_ + table);
  }

 private:
  std::uint64_t samples_, block_samples_, dense_features_, sample_bytes_, header_bytes_;
};

// The header as it stands in the file, filled up to header_bytes().
std::vector<std::uint8_t> encode(const PackedHeader& header);
// What the first bytes of a file say (the whole header, or the whole file where it is shorter); `file_bytes` is the
// size of the file. kCorrupt: no packed click file, one of another version, damaged, or cut off, in words without its
// name.
Result<PackedHeader> decode_packed_header(std::span<const std::uint8_t> bytes, std::uint64_t file_bytes);
// No more than so many bytes are needed of a file to decode its header.
inline constexpr std::size_t kMostHeaderBytes = std::size_t(1) << 20;

}  // namespace tutti
