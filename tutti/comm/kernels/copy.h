#pragma once
// Copy functions for the shared-memory paths.
#include <cstddef>

namespace tutti::comm {

// Like memcpy, but from kStreamFrom bytes on it bypasses the caches with non-temporal stores. This suits outputs that
// are not read soon. Ends with a store fence. The ranges must not overlap; for 0 bytes they may be null.
inline constexpr std::size_t kStreamFrom = std::size_t(1) << 20;
void copy_bytes(void* to, const void* from, std::size_t bytes);

// Bypasses the caches at any size, without a fence. The data must not be published to another thread before
// fence_streams().
void stream_bytes(void* to, const void* from, std::size_t bytes);
void fence_streams();

}  // namespace tutti::comm
