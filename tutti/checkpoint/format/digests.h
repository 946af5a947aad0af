#pragma once
// What changed in bytes whose digest is not the one that was saved.
#include <cstdint>
#include <optional>
#include <string>

#include "tutti/base/error.h"
#include "tutti/checkpoint/format/manifest.h"

namespace tutti {

struct ChangedByte {
  std::uint64_t place;  // from the beginning of the run
  unsigned change;      // the bits that differ
};

// The byte that alone explains why the CRC-32C of `size` bytes is `found` and not `expected`. None: no single byte
// does. Several changed bytes look like one by chance (6 % for a run of 1 MiB).
std::optional<ChangedByte> one_changed_byte(std::uint32_t found, std::uint32_t expected, std::uint64_t size);

// What is wrong with a header whose digest is not the saved one: kCorrupt, with the file, both digests and, where it
// can be found out, the byte that alone explains it, a run of zeros, a length that is not the header's, the tensor whose
// entry is damaged, or that it is the header of another save. `fd`: the file, which has stored.bytes.
Error changed_header(int fd, const std::string& path, const StoredFile& stored, std::uint32_t digest);

}  // namespace tutti
