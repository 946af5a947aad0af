#pragma once
// Where in a run of bytes the one is that changed, by the digests from before and after.
#include <cstdint>
#include <optional>

namespace tutti {

struct ChangedByte {
  std::uint64_t place;  // from the beginning of the run
  unsigned change;      // the bits that differ
};

// The byte that alone would explain that the CRC-32C of `size` bytes is `found` and not `expected`. None: no single one
// would. Several that changed may by chance (6 % for a run of 1 MiB) look as if one had.
std::optional<ChangedByte> one_changed_byte(std::uint32_t found, std::uint32_t expected, std::uint64_t size);

}  // namespace tutti
