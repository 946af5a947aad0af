#pragma once
// Reads the bytes of a file, and uncompresses them if it is a gzip file (RFC 1952, any number of members).
//
// Stricter than zlib's gzread(), which ignores data after the last member and cannot report its position.
#include <zlib.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

// One thread at a time.
class MaybeGzipFile {
 public:
  // kInvalidArgument: not a regular file.
  static Result<MaybeGzipFile> open(const std::string& path);

  // Fills `into` as far as the file goes; fewer bytes mean the end of the file. kCorrupt: damaged compressed data, or
  // data after the last member. The error does not name the file.
  Result<std::size_t> read(std::span<std::uint8_t> into);
  // Whether the file ended inside a gzip member.
  bool cut_off() const { return cut_off_; }
  std::size_t position() const { return position_; }                              // bytes read so far
  std::size_t disk_position() const { return disk_position_ - waiting_.size(); }  // their position in the file

 private:
  struct EndInflate {
    void operator()(z_stream* stream) const {
      inflateEnd(stream);
      delete stream;
    }
  };

  Status refill();
  Status begin_member();
  Result<std::size_t> inflate_into(std::span<std::uint8_t> into);

  std::string path_;
  Fd fd_;
  std::vector<std::uint8_t> buffer_;
  std::span<const std::uint8_t> waiting_;          // unread part of the buffer
  std::unique_ptr<z_stream, EndInflate> inflate_;  // null for a plain file
  bool in_member_ = false, ended_ = false, cut_off_ = false;
  std::size_t position_ = 0, disk_position_ = 0;
};

}  // namespace tutti
