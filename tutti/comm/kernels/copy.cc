// An ordinary store to a line that is not in the cache reads the line first; a streaming store does not. This saves a
// third of the traffic of a large copy. Below one MiB the data stays in the L2 cache, and streaming costs more than it
// saves.
#include "tutti/comm/kernels/copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace tutti::comm {

void stream_bytes(void* to, const void* from, std::size_t bytes) {
#ifdef __SSE2__
  auto* out = static_cast<char*>(to);
  auto* in = static_cast<const char*>(from);
  const std::size_t head = std::min(bytes, (64 - reinterpret_cast<std::uintptr_t>(out) % 64) % 64);
  std::memcpy(out, in, head);
  std::size_t i = head;
  for (; i + 64 <= bytes; i += 64) {
    const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i));
    const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i + 16));
    const __m128i c = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i + 32));
    const __m128i d = _mm_loadu_si128(reinterpret_cast<const __m128i*>(in + i + 48));
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + i), a);
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + i + 16), b);
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + i + 32), c);
    _mm_stream_si128(reinterpret_cast<__m128i*>(out + i + 48), d);
  }
  std::memcpy(out + i, in + i, bytes - i);
#else
  std::memcpy(to, from, bytes);
#endif
}

void fence_streams() {
#ifdef __SSE2__
  _mm_sfence();
#endif
}

void copy_bytes(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return;  // the ranges may be null
  if (bytes < kStreamFrom) {
    std::memcpy(to, from, bytes);
    return;
  }
  stream_bytes(to, from, bytes);
  fence_streams();
}

}  // namespace tutti::comm
