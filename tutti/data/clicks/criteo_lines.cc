#include "tutti/data/clicks/criteo_lines.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/text.h"

namespace tutti {

LineReader::LineReader(std::vector<std::string> paths, std::size_t piece_bytes)
    : paths_(std::move(paths)), piece_bytes_(piece_bytes) {}

// Adds what follows `text` in the file, up to piece_bytes_ in all: less means that the file has ended.
Status LineReader::fill(std::string& text) {
  const std::size_t have = text.size();
  text.resize(piece_bytes_);
  const auto got = file_->read({reinterpret_cast<std::uint8_t*>(text.data()) + have, piece_bytes_ - have});
  if (!got.ok()) {
    Error error = got.error();
    if (error.code == Code::kCorrupt)
      error.detail = fmt::format("{}: after line {}: {}", paths_[file_number_], lines_in_file_, error.detail);
    return error;
  }
  text.resize(have + *got);
  if (file_->cut_off())
    return Error{.code = Code::kCorrupt,
                 .detail = fmt::format("{}: the compressed data is cut off after line {}", paths_[file_number_],
                                       lines_in_file_ + std::uint64_t(std::count(text.begin(), text.end(), '\n'))),
                 .hint = "fetch the file again"};
  bytes_ += *got;
  return {};
}

Result<bool> LineReader::next(LinePiece& piece) {
  for (;;) {
    if (!file_) {
      if (file_number_ == paths_.size()) return false;
      file_ = std::make_unique<MaybeGzipFile>(TUTTI_TRY(MaybeGzipFile::open(paths_[file_number_])));
      lines_in_file_ = 0;
    }
    piece.text.swap(rest_);
    rest_.clear();
    TUTTI_TRY(fill(piece.text));
    const bool ended = piece.text.size() < piece_bytes_;
    if (!ended) {
      const std::size_t newline = piece.text.rfind('\n');
      if (newline == std::string::npos)
        return Error{.code = Code::kCorrupt,
                     .detail = fmt::format("{}: line {} is longer than {}", paths_[file_number_], lines_in_file_ + 1,
                                           bytes_text(piece_bytes_)),
                     .hint = "Criteo's lines have some 250 bytes: is this its text?"};
      rest_.assign(piece.text, newline + 1);
      piece.text.resize(newline + 1);
    }
    piece.file = file_number_;
    piece.first_line = lines_in_file_ + 1;
    piece.lines_before = lines_;
    piece.lines = std::uint64_t(std::count(piece.text.begin(), piece.text.end(), '\n'));
    if (!piece.text.empty() && piece.text.back() != '\n') ++piece.lines;
    lines_in_file_ += piece.lines;
    lines_ += piece.lines;
    if (ended) {
      lines_of_files_.push_back(lines_in_file_);
      disk_bytes_before_ += file_->disk_position();
      file_.reset();
      ++file_number_;
    }
    if (piece.lines > 0) return true;
  }
}

}  // namespace tutti
