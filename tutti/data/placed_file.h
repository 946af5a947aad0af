#pragma once
// Reading and writing at places of a file, whole or with a sentence. Any thread may call these.
#include <cstdint>
#include <span>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/fd.h"

namespace tutti {

class PlacedFile {
 public:
  static Result<PlacedFile> create(const std::string& path);  // must not exist yet; for reading and writing
  // For reading. kInvalidArgument: it is no regular file.
  static Result<PlacedFile> open(const std::string& path);

  const std::string& path() const { return path_; }
  Result<std::uint64_t> size() const;
  // kSystem with errno; kCorrupt where the file ends before.
  Status read(std::uint64_t at, std::span<std::byte> into) const;
  // kSystem; a full disk gets its hint.
  Status write(std::uint64_t at, std::span<const std::byte> bytes) const;
  Status flush() const;  // to the disk
  // The whole file, for reading; it must stay as long as it is. An empty file gives an empty mapping.
  Result<Mapping> map() const;

 private:
  std::string path_;
  Fd fd_;
};

Status rename_file(const std::string& from, const std::string& to);
Status remove_file(const std::string& path);

}  // namespace tutti
