#pragma once
// The loop that turns the gradients of all ranks into averages, on a host where each rank can read the memory of all.
//
// A tile of 8 KiB is averaged, in rank order, into a buffer in the first-level cache. It is checked there, which takes
// a hundredth of the time that it takes to come from memory, and handed to a sink. The sink writes it over the
// gradients of all ranks (peer_averages.cc), keeps it, or steps weights from it (optim/shard_averages.cc). Until the
// sink returns, what the ranks gave is still there, so a NaN can be traced to its rank.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/mutex.h"
#include "tutti/comm/kernels/finite.h"
#include "tutti/comm/kernels/reduce.h"

namespace tutti {

inline constexpr std::int64_t kTileBytes = 8 << 10;
inline constexpr std::int64_t kTileRun = 1 << 15;  // elements that one thread takes at least

// Elements [begin, begin + count) of a tensor of which each rank has a gradient.
struct TileSource {
  DType dtype;
  std::span<std::byte* const> gradients;  // by rank, as this process sees them
  std::int64_t begin = 0, count = 0;
  std::int64_t runs() const { return (count + kTileRun - 1) / kTileRun; }
};

struct AverageTile {
  DType dtype;
  std::int64_t run = 0;               // counted from 0; tiles of a run come in order, on one thread
  std::int64_t begin = 0, count = 0;  // elements of the tensor
  const void* average = nullptr;
  std::span<const void* const> gradients;  // by rank: what it is the average of
  std::int64_t bytes() const { return count * std::int64_t(size_of(dtype)); }
};

// Calls sink(const AverageTile&) for each tile, on as many threads as LibTorch uses.
template <class Sink>
void average_in_tiles(const TileSource& source, const Sink& sink) {
  const auto size = std::int64_t(size_of(source.dtype)), tile = kTileBytes / size;
  at::parallel_for(0, source.runs(), 1, [&](std::int64_t first, std::int64_t last) {
    alignas(64) std::byte average[kTileBytes];
    void* const out[] = {average};
    std::vector<const void*> gradients(source.gradients.size());
    for (std::int64_t run = first; run < last; ++run) {
      const std::int64_t end = std::min(source.count, (run + 1) * kTileRun);
      for (std::int64_t i = run * kTileRun; i < end; i += tile) {
        const std::int64_t begin = source.begin + i, count = std::min(tile, end - i);
        for (std::size_t r = 0; r < gradients.size(); ++r) gradients[r] = source.gradients[r] + begin * size;
        comm::reduce_many(source.dtype, ReduceOp::kAvg, gradients, out, std::size_t(count), int(gradients.size()));
        sink(AverageTile{source.dtype, run, begin, count, average, gradients});
      }
    }
  });
}

// The check of one pass over averages. Thread-safe: `report` is called for one tile at a time.
template <class Report>
class TileCheck {
 public:
  TileCheck(bool on, const Report& report) : on_(on), report_(report) {}
  bool passes(const AverageTile& tile) {
    if (!on_ || comm::all_finite(tile.dtype, tile.average, std::size_t(tile.count))) return true;
    const MutexLock lock(mutex_);
    report_(tile);
    return false;
  }

 private:
  const bool on_;
  const Report& report_;
  Mutex mutex_;  // guards no member: one report at a time
};

}  // namespace tutti
