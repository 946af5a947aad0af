#pragma once
// The directory of a zip archive whose records are stored as they are, as PyTorch writes them: no record is compressed,
// so there is nothing that could unfold. Zip64 is read.
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

#include "tutti/base/error.h"

namespace tutti {

struct ZipRecord {
  std::uint64_t offset = 0, bytes = 0;  // of its contents in the file
  std::uint32_t crc32 = 0;              // the one of zip, not CRC-32C
};

// Reads bytes of the archive from `offset` on.
using ReadAt = std::function<Status(std::uint64_t offset, std::span<std::byte> into)>;

// By name. kCorrupt: what breaks which rule; kUnsupported: a record is compressed or encrypted, or the archive is in
// several files. Records that are taken lie inside of the file and do not overlap. Takes memory in proportion to the
// directory, which is at most 256 MiB.
Result<std::map<std::string, ZipRecord>> read_zip_directory(std::uint64_t file_bytes, const ReadAt& read);

}  // namespace tutti
