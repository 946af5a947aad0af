#pragma once
// Reads and writes at offsets of a file. A call transfers all bytes or returns an error. Thread-safe.
#include <cstdint>
#include <span>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

class PlacedFile {
 public:
  static Result<PlacedFile> create(const std::string& path);  // must not exist yet; for reading and writing
  // For reading. kInvalidArgument: not a regular file.
  static Result<PlacedFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  Result<std::uint64_t> size() const;
  // kSystem with errno; kCorrupt: the file ends before.
  Status read(std::uint64_t at, std::span<std::byte> into) const;
  // kSystem; the error of a full disk has a hint.
  Status write(std::uint64_t at, std::span<const std::byte> bytes) const;
  Status flush() const;  // to the disk
  // Maps the whole file for reading. The file must keep its length. An empty file gives an empty mapping.
  Result<Mapping> map() const;

 private:
  std::string path_;
  Fd fd_;
};

Status rename_file(const std::string& from, const std::string& to);
Status remove_file(const std::string& path);

}  // namespace tutti
