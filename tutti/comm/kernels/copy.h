#pragma once
// Copying for the shared-memory paths.
#include <cstddef>

namespace tutti {

// memcpy, except that from kStreamFrom bytes on the destination is written past the caches (non-temporal stores): right
// for outputs that nobody reads soon. Ends with a store fence. The ranges do not overlap; of
// 0 bytes they may be null.
inline constexpr std::size_t kStreamFrom = std::size_t(1) << 20;
void copy_bytes(void* to, const void* from, std::size_t bytes);

// The same past the caches at any size, without the fence: nothing of it may be told to another thread before
// fence_streams().
void stream_bytes(void* to, const void* from, std::size_t bytes);
void fence_streams();

}  // namespace tutti
