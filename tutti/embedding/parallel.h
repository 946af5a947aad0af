#pragma once
// How loops are divided among threads, for code above the Torch line, which has no thread pool.
#include <cstdint>
#include <functional>

namespace tutti {

// Calls body(begin, end) for runs that together are 0 .. n, each of at least `grain` where that is possible, maybe at
// the same time; returns when all have. What the bodies do must not depend on how the runs are cut.
using ParallelFor = std::function<void(std::int64_t n, std::int64_t grain,
                                       const std::function<void(std::int64_t, std::int64_t)>& body)>;

inline void serial_for(std::int64_t n, std::int64_t, const std::function<void(std::int64_t, std::int64_t)>& body) {
  if (n > 0) body(0, n);
}

}  // namespace tutti
