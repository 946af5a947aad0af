#pragma once
// Criteo's text files one after another, in pieces of whole lines.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/gzip.h"

namespace tutti {

struct LinePiece {
  std::size_t file = 0;            // its number among the files
  std::uint64_t first_line = 1;    // in its file, from 1
  std::uint64_t lines_before = 0;  // in all files before this piece
  std::uint64_t lines = 0;
  std::string text;  // whole lines; the very last may lack its newline
};

// One thread at a time.
class LineReader {
 public:
  explicit LineReader(std::vector<std::string> paths, std::size_t piece_bytes = std::size_t(4) << 20);

  // The next piece, taking over its memory; false at the end of the last file. kNotFound, kSystem, kCorrupt: file and
  // line are named.
  Result<bool> next(LinePiece& piece);
  // Of each file whose end has been reached.
  const std::vector<std::uint64_t>& lines_of_files() const { return lines_of_files_; }
  // Bytes of text so far, uncompressed.
  std::uint64_t bytes() const { return bytes_; }
  // Bytes of the files that were used up, as they lie on the disk: what progress is measured by.
  std::uint64_t disk_bytes() const { return disk_bytes_before_ + (file_ ? file_->disk_position() : 0); }

 private:
  Status fill(std::string& text);

  std::vector<std::string> paths_;
  std::size_t piece_bytes_;
  std::unique_ptr<MaybeGzipFile> file_;
  std::size_t file_number_ = 0;
  std::uint64_t lines_in_file_ = 0, lines_ = 0, bytes_ = 0, disk_bytes_before_ = 0;
  std::string rest_;  // the beginning of a line that the next piece ends
  std::vector<std::uint64_t> lines_of_files_;
};

}  // namespace tutti
